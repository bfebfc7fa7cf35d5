/** Which tests run when is written down, and true; and what documented commands write does not get into the tree. */
import assert from 'node:assert/strict';
import { cpSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { replaceSection } from '../../scripts/marked-section.ts';
import { ALONE, isIn, REPEATED } from '../suites.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const CONTRIBUTING = join(ROOT, 'CONTRIBUTING.md');
const FILES = globSync('test/**/*.test.ts', { cwd: ROOT });

describe('the suites', () => {
  it('name files that there are', () => {
    for (const path of [...Object.keys(REPEATED), ...Object.keys(ALONE)]) {
      assert.ok(
        FILES.some((file) => isIn({ [path]: '' }, file)),
        path,
      );
    }
  });

  it('leave to npm run test:all only what CONTRIBUTING.md names', () => {
    const rows = Object.entries(REPEATED).map(([path, proves]) => `| \`${path}\` | ${proves} |\n`);
    const page = readFileSync(CONTRIBUTING, 'utf8');
    const written = replaceSection(
      page,
      'suites',
      `| only in the whole run | proves |\n| --- | --- |\n${rows.join('')}`,
    );
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(CONTRIBUTING, written);
    else assert.equal(page, written, 'run: UPDATE_DOCS=1 npx node --test test/docs/suites.test.ts');
  });

  it('list the files of a run: without words those that prove the product once', () => {
    const list = (...args: string[]): string[] => {
      const { status, stdout } = run(process.execPath, ['scripts/test.ts', '--list', ...args]);
      assert.equal(status, 0);
      return stdout.trim().split('\n');
    };
    assert.deepEqual(list('--all'), FILES.sort());
    const once = list();
    assert.ok(once.includes('test/gateway/errors.test.ts'));
    assert.deepEqual(
      FILES.filter((file) => !once.includes(file) && !isIn(REPEATED, file)),
      [],
    );
    assert.deepEqual(list('test/config/help'), ['test/config/help.test.ts']);
  });
});

/** A tree with the runner and these test files. */
function treeWith(files: Readonly<Record<string, string>>): string {
  const tree = temporaryDirectory('privatemode-suites-');
  for (const name of ['scripts/test.ts', 'test/suites.ts', 'package.json'])
    cpSync(join(ROOT, name), join(tree, name));
  for (const [name, body] of Object.entries(files))
    writeFileSync(join(tree, 'test', name), `import { it } from 'node:test';\n${body}`);
  return tree;
}

describe('a run of tests', () => {
  const PASSES = "it('passes', () => {});\n";
  const LACKS =
    "process.stderr.write('##### NOT CHECKED: abacus is missing (its maker installs it) #####\\n');\n" +
    "it('counts', { skip: 'NOT CHECKED' }, () => {});\n";
  const ROWS: readonly (readonly [
    what: string,
    files: Record<string, string>,
    status: number,
    last: RegExp,
  ])[] = [
    ['that passes', { 'a.test.ts': PASSES }, 0, /\n1 passed, 0 failed, 0 skipped\n$/],
    [
      'in which one fails',
      { 'a.test.ts': PASSES, 'b.test.ts': "it('fails', () => { throw new Error('so'); });\n" },
      1,
      /\n1 passed, 1 failed, 0 skipped\n$/,
    ],
    ['whose file cannot be read', { 'a.test.ts': PASSES, 'b.test.ts': 'const;' }, 1, /, 1 failed, /],
    ['without a test', {}, 1, /\n0 passed, 0 failed, 0 skipped\n$/],
    [
      'for which a program is missing',
      { 'a.test.ts': PASSES, 'b.test.ts': LACKS, 'c.test.ts': LACKS },
      0,
      /\nNot checked on this machine: abacus is missing \(its maker installs it\)\n1 passed, 0 failed, 2 skipped\n$/,
    ],
  ];
  for (const [what, files, status, last] of ROWS) {
    it(`${what} ends with ${status} and says so`, (_t) => {
      const env = cleanEnvironment({}, /^NODE_TEST_CONTEXT$/);
      const ended = run(process.execPath, [join(treeWith(files), 'scripts/test.ts')], { env });
      assert.match(ended.stdout, last);
      assert.equal(ended.status, status, ended.stdout);
    });
  }
});

describe('what documented commands write into the checkout', () => {
  it('is ignored by git, and so by lint', () => {
    const pages = ['README.md', 'CONTRIBUTING.md', ...globSync('docs/*.md', { cwd: ROOT })];
    const text = pages.map((page) => readFileSync(join(ROOT, page), 'utf8')).join('\n');
    const named = [...text.matchAll(/ --(?:save|workspace|dir)[ =]([a-z][a-z./-]*)/g)].map(
      ([, path]) => path,
    );
    assert.ok(named.length > 3, named.join());
    const defaults = ['manifests', 'collateral', 'requests', 'receipts', 'limits'];
    const builds = ['dist', 'coverage', 'bench/out', '.fuzz', '.tools', 'privatemode-proxy-0.1.0.tgz'];
    const written = [...named, ...defaults, ...builds].map((path) => path as string);
    const paths = written.map((path) => (path.endsWith('.tgz') ? path : `${path}/file.json`));
    const { stdout } = run('git', ['check-ignore', '--no-index', ...paths]);
    assert.deepEqual(
      paths.filter((path) => !stdout.split('\n').includes(path)),
      [],
    );
  });
});
