/**
 * Which tests run when is written down, and true; and what documented commands write does not get into the
 * tree.
 */
import assert from 'node:assert/strict';
import { cpSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { replaceSection } from '../../scripts/marked-section.ts';
import {
  ALONE,
  BY_ITSELF,
  filesOf,
  isIn,
  NODE_ALONE,
  optionsOf,
  PROXY_ALONE,
  REPEATED,
  RUNS,
} from '../suites.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const CONTRIBUTING = join(ROOT, 'CONTRIBUTING.md');
const FILES = globSync('test/**/*.test.ts', { cwd: ROOT }).sort();

describe('the suites of tests', () => {
  it('name only files that exist', () => {
    const tables = [REPEATED, ALONE, BY_ITSELF].flatMap(Object.keys);
    for (const path of [...tables, ...RUNS.flatMap(({ paths, leftOut = [] }) => [...paths, ...leftOut])]) {
      assert.ok(
        FILES.some((file) => isIn({ [path]: '' }, file)),
        path,
      );
    }
  });

  it('that only npm run test:all runs are exactly those in the table of CONTRIBUTING.md, each with what it proves', () => {
    const runs = RUNS.map((run) => [`npm test -- ${optionsOf(run)}`, run.proves]);
    const rows = [...runs, ...Object.entries(REPEATED)].map(
      ([what, proves]) => `| \`${what}\` | ${proves} |\n`,
    );
    const page = readFileSync(CONTRIBUTING, 'utf8');
    const written = replaceSection(
      page,
      'suites',
      `| only in the whole run | proves |\n| --- | --- |\n${rows.join('')}`,
    );
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(CONTRIBUTING, written);
    else assert.equal(page, written, 'run: UPDATE_DOCS=1 npx node --test test/docs/suites.test.ts');
  });

  it('have properties that each name their seed, so that npm test always runs the same cases', () => {
    for (const file of FILES) {
      const [, ...calls] = readFileSync(join(ROOT, file), 'utf8').split('fc.assert(');
      for (const call of calls)
        assert.match(call, /\b(?:seed:|SEED\b|RUNS\b)/, `${file}: ${call.slice(0, 80)}`);
    }
  });

  it('list the files of a run with --list, by default those that prove the product once', () => {
    const list = (...args: string[]): string[] => {
      const { status, stdout } = run(process.execPath, ['scripts/test.ts', '--list', ...args]);
      assert.equal(status, 0);
      return stdout.trim().split('\n');
    };
    const runs = RUNS.map((each) => filesOf(each, FILES).map((file) => `${file} ${optionsOf(each)}`));
    assert.deepEqual(list('--all'), [...FILES, ...runs.flat()]);
    const once = list();
    assert.ok(once.includes('test/gateway/errors.test.ts'));
    assert.deepEqual(
      FILES.filter((file) => !once.includes(file) && !isIn(REPEATED, file)),
      [],
    );
    assert.deepEqual(list('--engine', 'portable', 'config/help'), [
      'test/config/help.test.ts --engine portable',
    ]);
  });
});

/** A tree with the runner and these test files. */
function treeWith(files: Readonly<Record<string, string>>): string {
  const tree = temporaryDirectory('privatemode-suites-');
  for (const name of [
    'scripts/test.ts',
    'scripts/options.ts',
    'scripts/test-report.ts',
    'test/suites.ts',
    'test/together.ts',
    'package.json',
  ])
    cpSync(join(ROOT, name), join(tree, name));
  for (const [name, body] of Object.entries(files)) {
    mkdirSync(dirname(join(tree, 'test', name)), { recursive: true });
    writeFileSync(join(tree, 'test', name), `import { after, describe, it } from 'node:test';\n${body}`);
  }
  return tree;
}

/** Runs the tests of a tree. */
const runIn = (tree: string, ...args: string[]): ReturnType<typeof run> =>
  run(process.execPath, [join(tree, 'scripts/test.ts'), ...args], {
    env: cleanEnvironment({}, /^NODE_TEST_CONTEXT$/),
  });

describe('a run of tests', () => {
  const PASSES = "it('passes', () => {});\n";
  const FAILS = '() => { throw new Error(); }';
  const LACKS =
    "process.stderr.write('##### NOT CHECKED: abacus is missing (its maker installs it) #####\\n');\n";
  const skipped = (name: string, reason: string): string => `it('${name}', { skip: '${reason}' });\n`;
  // By what the fixtures take, not what the runner gave.
  const SAYS = `
    import { DOOR } from '${join(ROOT, 'test/support/doors/library-door.ts')}';
    import { ENGINE } from '${join(ROOT, 'test/support/evidence/engine.ts')}';
    it(DOOR + ' ' + ENGINE, ${FAILS});\n`;
  const SKIPS = skipped('flags', PROXY_ALONE.flags) + skipped('keys', `${NODE_ALONE}keys`);

  it('ends with 0 if each file passes a test or names what the machine lacks, and each skip is allowed', () => {
    const ended = runIn(
      treeWith({
        'a.test.ts': PASSES + skipped('flags', PROXY_ALONE.flags),
        'e2e/b.test.ts': LACKS + skipped('counts', 'NOT CHECKED: abacus is missing (its maker installs it)'),
        'e2e/c.test.ts': LACKS,
      }),
      ...['--door', 'library', '.test.ts'],
    );
    assert.match(
      ended.stdout,
      /\nNot checked on this machine: abacus is missing \(its maker installs it\)\n1 passed, 0 failed, 2 skipped\n$/,
    );
    assert.equal(ended.status, 0, ended.stdout);
  });

  it('ends with 1 and names each test that failed, was skipped or left to do, and each file that proved nothing, through every door and engine with --all', () => {
    const { stdout, status } = runIn(
      treeWith({
        'a.test.ts': `describe('a key', () => describe('of a client', () => it('is read', ${FAILS})));`,
        'b.test.ts': 'const;',
        'e2e/b.test.ts': 'const;',
        'c.test.ts': '',
        'd.test.ts': `describe('keys', () => { after(${FAILS}); ${PASSES} });`,
        'e.test.ts': `${PASSES}it('counts', { todo: true }, () => {});`,
        'config/a.test.ts': PASSES,
        'config/b.test.ts': 'const;',
        'config/c.test.ts': '',
        'config/d.test.ts': `describe('a key', () => it('is read', ${FAILS}));`,
        'config/e.test.ts': "it('sets a variable', () => { process.env.LEFT = 'behind'; });",
        'applications/anthropic.test.ts': skipped('flags', PROXY_ALONE.flags),
        'applications/openai.test.ts': PASSES + SAYS + SKIPS,
        'session/client-keys.test.ts': PASSES + SAYS + SKIPS,
      }),
      '--all',
    );
    const [, last = ''] = stdout.split('\nFailed:\n');
    const told = last
      .split('\n')
      .filter(Boolean)
      .toSorted()
      .map((line) => line.replace(/^ {2}test\//, ''));
    assert.deepEqual(told, [
      'a.test.ts: a key: of a client: is read',
      'applications/anthropic.test.ts --door library --engine portable: no test passed',
      'applications/anthropic.test.ts --door library: no test passed',
      'applications/anthropic.test.ts: flags (skipped: the library has an option in place of the flag)',
      'applications/anthropic.test.ts: no test passed',
      'applications/openai.test.ts --door library --engine portable: library portable',
      'applications/openai.test.ts --door library: keys (skipped: about node:crypto alone: keys)',
      'applications/openai.test.ts --door library: library node',
      'applications/openai.test.ts: flags (skipped: the library has an option in place of the flag)',
      'applications/openai.test.ts: keys (skipped: about node:crypto alone: keys)',
      'applications/openai.test.ts: proxy node',
      'b.test.ts: it cannot be loaded, or a hook failed',
      'c.test.ts: no test passed',
      'config/b.test.ts: it cannot be loaded, or a hook failed',
      'config/c.test.ts: no test passed',
      'config/d.test.ts: a key: is read',
      'config/e.test.ts: it cannot be loaded, or a hook failed',
      'd.test.ts: keys',
      'e.test.ts: counts (skipped: true)',
      'e2e/b.test.ts: the process failed',
      'session/client-keys.test.ts --engine portable: flags (skipped: the library has an option in place of the flag)',
      'session/client-keys.test.ts --engine portable: proxy portable',
      'session/client-keys.test.ts: flags (skipped: the library has an option in place of the flag)',
      'session/client-keys.test.ts: keys (skipped: about node:crypto alone: keys)',
      'session/client-keys.test.ts: proxy node',
      '9 passed, 25 failed, 6 skipped',
    ]);
    assert.equal(status, 1);
  });

  it('ends with 1 without a file, and at once with an unknown door', () => {
    const { stdout, status } = runIn(treeWith({}));
    assert.match(stdout, /\n0 passed, 0 failed, 0 skipped\n$/);
    assert.equal(status, 1);
    const unknown = runIn(ROOT, '--door', 'window');
    assert.deepEqual([unknown.status, unknown.stdout], [2, '']);
  });
});

describe('what documented commands write into the checkout', () => {
  it('is ignored by git', () => {
    const pages = ['README.md', 'CONTRIBUTING.md', ...globSync('docs/*.md', { cwd: ROOT })];
    const text = pages.map((page) => readFileSync(join(ROOT, page), 'utf8')).join('\n');
    const named = [...text.matchAll(/ --(?:save|workspace|dir)[ =]([a-z][a-z./-]*)/g)].map(
      ([, path]) => path,
    );
    assert.ok(named.length > 3, named.join());
    const defaults = ['manifests', 'collateral', 'requests', 'receipts'];
    const builds = ['dist', 'coverage', '.tools', 'privatemode-proxy-0.1.0.tgz', 'limits.json'];
    const written = [...named, ...defaults, ...builds].map((path) => path as string);
    const paths = written.map((path) => (/\.(?:tgz|json)$/.test(path) ? path : `${path}/file.json`));
    const { stdout } = run('git', ['check-ignore', '--no-index', ...paths]);
    assert.deepEqual(
      paths.filter((path) => !stdout.split('\n').includes(path)),
      [],
    );
  });
});
