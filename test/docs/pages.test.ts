import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { parse as parseYaml } from 'yaml';
import { ERRORS } from '../../lib/errors.ts';
import { renderOperations } from '../../scripts/operations-page.ts';
import { INSTALL_BLOCKS } from '../packaging/support/install-blocks.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'deploy/chart/README.md',
  'examples/README.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

/** GitHub's name for a heading. */
const anchor = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');

describe('the pages of docs', () => {
  it('have the tables of docs/operations.md as they are: error codes, log fields, metrics', () => {
    const page = read('docs/operations.md');
    const stale = renderOperations()
      .split('\n')
      .filter((line) => !page.includes(line));
    assert.deepEqual(stale, [], 'npx node scripts/operations-page.ts writes it');
    assert.equal(page, renderOperations(), 'npx node scripts/operations-page.ts writes it');
    for (const code of Object.keys(ERRORS)) assert.ok(page.includes(`| \`${code}\` |`), code);
  });

  it('have no line to copy for installing that no check runs', () => {
    const blocks = read('docs/install.md').match(/^```sh$/gm) ?? [];
    assert.equal(INSTALL_BLOCKS.size, blocks.length, 'each block has a name');
    const checks = readdirSync(join(ROOT, 'test/packaging'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && !name.endsWith('docs.test.ts'))
      .map((name) => read(`test/packaging/${name}`))
      .join('\n');
    for (const name of INSTALL_BLOCKS.keys()) assert.ok(checks.includes(`'${name}'`), name);
  });

  it('link to what is there', () => {
    let links = 0;
    for (const page of PAGES) {
      for (const [, target] of read(page).matchAll(/\]\((?!https?:)([^)\s]+)\)/g)) {
        links++;
        const [path, fragment] = (target as string).split('#') as [string, string | undefined];
        const file = path === '' ? page : join(dirname(page), path);
        assert.ok(existsSync(join(ROOT, file)), `${page}: ${target}`);
        if (fragment === undefined) continue;
        const headings = [...read(file).matchAll(/^#+ (.*)$/gm)].map((match) => anchor(match[1] as string));
        assert.ok(headings.includes(fragment), `${page}: ${target}`);
      }
    }
    assert.ok(links > 10, `${links} links`);
  });

  it('name no file of a first start that git would take along', () => {
    const files = ['key.txt', 'manifests/log.txt', 'collateral/x', 'requests/1/request.json'];
    for (const { workspace } of [{ workspace: '' }, { workspace: 'workspace/' }]) {
      for (const file of workspace === '' ? files : files.slice(1)) {
        const { status } = run('git', ['check-ignore', '--no-index', '--quiet', workspace + file], {
          cwd: ROOT,
        });
        assert.equal(status, 0, workspace + file);
      }
    }
    assert.match(read('README.md'), /> key\.txt\)$/m);
  });

  it('call a client tested only where its test is', () => {
    const rows = [...read('docs/agents.md').matchAll(/^\| .* \| `npm [^`]+` \(`([^`]+)`\) \|$/gm)];
    assert.ok(rows.length >= 4);
    for (const [row, file] of rows) assert.ok(existsSync(join(ROOT, file as string)), row);
  });

  it('call a recipe tested only where its test is, and all others not tested', () => {
    const page = read('docs/recipes.md');
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    const rows = [...page.matchAll(/^\| .* \| (.+) \|$/gm)].map(([, tested]) => tested as string).slice(2);
    assert.ok(rows.length >= 6);
    for (const tested of rows) {
      const script = /^yes: `npm run (test:\w+)`$/.exec(tested)?.[1];
      if (script === undefined) assert.equal(tested, 'no: as its makers describe it');
      else {
        const [, file] = /^node --test (\S+)$/.exec(scripts[script] ?? '') ?? [];
        assert.ok(existsSync(join(ROOT, file ?? 'nothing')), tested);
      }
    }
  });

  it('give recipes in words that parse, and no base URL but those of the proxy', () => {
    const page = read('docs/recipes.md');
    for (const [, text] of page.matchAll(/^```json\n([^`]+)```$/gm)) JSON.parse(text as string);
    for (const [, text] of page.matchAll(/^```yaml\n([^`]+)```$/gm)) parseYaml(text as string);
    const urls = [...page.matchAll(/https?:\/\/[^\s"'`)]+/g)].map(([url]) => url);
    assert.ok(urls.length > 10);
    for (const url of urls) {
      assert.match(url, /^http:\/\/(localhost|privatemode-proxy|host\.docker\.internal):8080(\/v1)?$/);
    }
  });

  it('begin with a README of at most 120 lines', () => {
    assert.ok(read('README.md').trimEnd().split('\n').length <= 120);
  });

  it('name scripts of package.json', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    for (const page of PAGES) {
      for (const [words, name] of read(page).matchAll(/npm run ([a-z:-]+)/g)) {
        assert.ok(Object.hasOwn(scripts, name as string), `${page}: ${words}`);
      }
    }
  });
});
