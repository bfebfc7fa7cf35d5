import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { parse as parseYaml } from 'yaml';
import { renderTables } from '../../scripts/tables.ts';
import { argumentsOf, settings } from '../applications/settings.ts';
import { blocksOf } from '../packaging/support/install-blocks.ts';
import { ROOT } from '../support/processes/tools.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const DOCS = readdirSync(join(ROOT, 'docs'))
  .filter((name) => name.endsWith('.md'))
  .map((name) => `docs/${name}`);
const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'AGENTS.md',
  'SECURITY.md',
  'deploy/chart/README.md',
  'examples/README.md',
  'test/README.md',
  'bench/README.md',
  'CHANGELOG.md',
  ...DOCS,
];

/** GitHub's name for a heading. */
const anchor = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');

describe('the pages of docs', () => {
  it('have the tables that the code writes: endpoints, flags, error codes, notices, metrics, checks', () => {
    const outdated = [...renderTables()].filter(([page, text]) => read(page) !== text).map(([page]) => page);
    assert.deepEqual(outdated, [], 'npx node scripts/tables.ts writes them');
  });

  it('have only blocks of installation commands that a check of test/packaging runs', () => {
    const [installing = ''] = read('docs/install.md').split('\n## Releases');
    for (const [, before] of installing.matchAll(/^(.*)\n```sh$/gm))
      assert.match(before as string, /^<!-- block: /);
    const checks = readdirSync(join(ROOT, 'test/packaging'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && !name.endsWith('docs.test.ts'))
      .map((name) => read(`test/packaging/${name}`))
      .join('\n');
    for (const page of ['install.md', 'simulator.md', 'team.md']) {
      const names = [...blocksOf(page).keys()];
      assert.ok(names.length > 0, page);
      for (const name of names) assert.ok(checks.includes(`'${name}'`), `${page}: ${name}`);
    }
  });

  it('link only to files and headings that exist', () => {
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

  it('have at most 3,500 words each, except the sheets of the protocol', () => {
    const words = (page: string): number => (read(page).match(/\S*[\p{L}\p{N}]\S*/gu) ?? []).length;
    const long = DOCS.filter((page) => words(page) > 3500);
    assert.deepEqual(long, [], 'split the page by the questions that it answers');
  });

  it('are each linked once below "All pages" in README.md', () => {
    const [, map = ''] = read('README.md').split('## All pages\n');
    const linked = [...map.matchAll(/\]\((docs\/[\w/-]+\.md)\)/g)].map(([, target]) => target);
    const sheets = readdirSync(join(ROOT, 'docs/protocol')).map((name) => `docs/protocol/${name}`);
    assert.deepEqual(linked.sort(), [...DOCS, ...sheets].sort());
  });

  it('keep WebFetch of Claude Code from asking Anthropic about its hosts', () => {
    const args = argumentsOf('claude', settings('Claude Code', 'sh', { url: '', model: 'm' }));
    const given = JSON.parse(args[args.indexOf('--settings') + 1] as string);
    assert.deepEqual(given, { skipWebFetchPreflight: true, permissions: { deny: ['WebSearch'] } });
    assert.deepEqual(JSON.parse(settings('Claude Code', 'json', { url: '', model: 'm' })), given);
  });

  it('have settings whose JSON and YAML parse; those of applications have only URLs of the proxy', () => {
    const page = read('docs/applications.md');
    const both = page + read('docs/agents.md');
    for (const [, text] of both.matchAll(/^```json\n([^`]+)```$/gm)) JSON.parse(text as string);
    for (const [, text] of both.matchAll(/^```yaml\n([^`]+)```$/gm)) parseYaml(text as string);
    const urls = [...page.matchAll(/https?:\/\/[^\s"'`)]+/g)].map(([url]) => url);
    assert.ok(urls.length > 10);
    for (const url of urls) {
      assert.match(url, /^http:\/\/(127\.0\.0\.1|privatemode-proxy|host\.docker\.internal):8080(\/v1)?$/);
    }
  });

  it('begin with a README of at most 110 lines', () => {
    assert.ok(read('README.md').trimEnd().split('\n').length <= 110);
  });

  it('name only npm scripts that package.json has', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
    for (const page of PAGES) {
      for (const [words, name] of read(page).matchAll(/npm run ([a-z:-]+)/g)) {
        assert.ok(Object.hasOwn(scripts, name as string), `${page}: ${words}`);
      }
    }
  });
});
