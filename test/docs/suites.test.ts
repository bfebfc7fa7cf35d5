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
    assert.deepEqual(list('test/config/help'), ['test/config/help.test.ts']);
    assert.deepEqual(list('--door', 'library', '--engine', 'portable'), runs[1]);
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
  const skips = (reason: string): string =>
    `${PASSES}describe('a key', () => it('is read', { skip: '${reason}' }, () => {}));\n`;
  const ROWS: readonly (readonly [
    what: string,
    files: Record<string, string>,
    status: number,
    last: RegExp,
    options?: string,
  ])[] = [
    ['that passes', { 'a.test.ts': PASSES }, 0, /\n1 passed, 0 failed, 0 skipped\n$/],
    [
      'in which one fails',
      {
        'a.test.ts': PASSES,
        'b.test.ts': `describe('a key', () => describe('of a client', () => it('is read', ${FAILS})));`,
      },
      1,
      /\nFailed:\n {2}test\/b\.test\.ts: a key: of a client: is read\n\n1 passed, 1 failed, 0 skipped\n$/,
    ],
    [
      'in which the hook after a suite fails',
      { 'a.test.ts': `describe('keys', () => { after(${FAILS}); ${PASSES} });` },
      1,
      /\n {2}test\/a\.test\.ts: keys\n\n1 passed, 1 failed, /,
    ],
    [
      'whose file cannot be read',
      { 'a.test.ts': PASSES, 'b.test.ts': 'const;' },
      1,
      /\n {2}test\/b\.test\.ts: the process failed\n\n1 passed, 1 failed, /,
    ],
    [
      'in which a file that shares a process cannot be read, has no test, or fails',
      {
        'config/a.test.ts': PASSES,
        'config/b.test.ts': 'const;',
        'config/c.test.ts': '',
        'config/d.test.ts': `describe('a key', () => it('is read', ${FAILS}));`,
      },
      1,
      /Failed:\n {2}test\/config\/b\.test\.ts: it cannot be loaded, .*\n {2}test\/config\/d\.test\.ts: a key: is read\n {2}test\/config\/c\.test\.ts: no test passed\n\n1 passed, 3 failed, /,
    ],
    [
      'in which a file that shares a process leaves it changed',
      { 'config/a.test.ts': "it('sets a variable', () => { process.env.LEFT = 'behind'; });" },
      1,
      /\n {2}test\/config\/a\.test\.ts: it cannot be loaded, or a hook failed\n\n1 passed, 1 failed, /,
    ],
    ['without a file', {}, 1, /\n0 passed, 0 failed, 0 skipped\n$/],
    [
      'with a file without a test',
      { 'a.test.ts': PASSES, 'b.test.ts': '' },
      1,
      /\n {2}test\/b\.test\.ts: no test passed\n\n1 passed, 1 failed, 0 skipped\n$/,
    ],
    [
      'for which a program is missing',
      {
        'a.test.ts': PASSES,
        'b.test.ts': `${LACKS}it('counts', { skip: 'NOT CHECKED: abacus is missing (its maker installs it)' });`,
        'c.test.ts': LACKS,
      },
      0,
      /\nNot checked on this machine: abacus is missing \(its maker installs it\)\n1 passed, 0 failed, 1 skipped\n$/,
    ],
    [
      'that skips a test for another reason',
      { 'a.test.ts': skips(PROXY_ALONE.flags) },
      1,
      /\n {2}test\/a\.test\.ts: a key: is read \(skipped: the library has an option .*\)\n\n1 passed, 1 failed, 0 /,
    ],
    [
      'that leaves a test to do',
      { 'a.test.ts': `${PASSES}it('counts', { todo: true }, () => {});` },
      1,
      /: counts \(skipped: true\)\n\n1 passed, 1 failed, 0 skipped\n$/,
    ],
    [
      'through the library that skips what only the proxy has',
      { 'a.test.ts': skips(PROXY_ALONE.flags) },
      0,
      /\n1 passed, 0 failed, 1 skipped\n$/,
      '--door library',
    ],
    [
      'through the library that skips anything else',
      { 'a.test.ts': skips(`${NODE_ALONE}keys`) },
      1,
      /\n {2}test\/a\.test\.ts --door library: a key: is read \(skipped: about node:crypto alone: keys\)\n/,
      '--door library',
    ],
    [
      'through the library with a file of which every test is skipped',
      { 'a.test.ts': PASSES, 'b.test.ts': `it('counts', { skip: '${PROXY_ALONE.flags}' }, () => {});` },
      1,
      /\n {2}test\/b\.test\.ts --door library: no test passed\n\n1 passed, 1 failed, 1 skipped\n$/,
      '--door library',
    ],
    [
      'with the portable engine that skips what is about the engine of Node',
      { 'a.test.ts': skips(`${NODE_ALONE}keys`) },
      0,
      /\n1 passed, 0 failed, 1 skipped\n$/,
      '--engine portable',
    ],
  ];
  for (const [what, files, status, last, options = ''] of ROWS) {
    it(`${what} ends with status ${status}, and the report at its end says so`, () => {
      const args = options === '' ? [] : [...options.split(' '), 'test.ts'];
      const ended = runIn(treeWith(files), ...args);
      assert.match(ended.stdout, last);
      assert.equal(ended.status, status, ended.stdout);
    });
  }

  it('with --all uses every door and engine of the table, and adds up the results', () => {
    // By what the fixtures take, not what the runner gave.
    const says = `
      import { DOOR } from '${join(ROOT, 'test/support/doors/library-door.ts')}';
      import { ENGINE } from '${join(ROOT, 'test/support/evidence/engine.ts')}';
      it(DOOR + ' ' + ENGINE, ${FAILS});`;
    const files = { 'applications/openai.test.ts': says, 'session/client-keys.test.ts': PASSES + says };
    const { stdout } = runIn(treeWith(files), '--all');
    assert.deepEqual(stdout.slice(stdout.indexOf('Failed:')).split('\n'), [
      'Failed:',
      '  test/session/client-keys.test.ts: proxy node',
      '  test/applications/openai.test.ts: proxy node',
      '  test/applications/openai.test.ts --door library: library node',
      '  test/applications/openai.test.ts --door library --engine portable: library portable',
      '  test/session/client-keys.test.ts --engine portable: proxy portable',
      '',
      '2 passed, 5 failed, 0 skipped',
      '',
    ]);
  });

  it('ends at once with an unknown option, door or engine', () => {
    for (const args of [['--quick'], ['--door', 'window'], ['--engine', 'steam']]) {
      const { status, stdout } = runIn(ROOT, ...args);
      assert.deepEqual([status, stdout], [2, ''], args.join(' '));
    }
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
    const defaults = ['manifests', 'collateral', 'requests', 'receipts', 'limits'];
    const builds = ['dist', 'coverage', 'bench/out', '.tools', 'privatemode-proxy-0.1.0.tgz'];
    const written = [...named, ...defaults, ...builds].map((path) => path as string);
    const paths = written.map((path) => (path.endsWith('.tgz') ? path : `${path}/file.json`));
    const { stdout } = run('git', ['check-ignore', '--no-index', ...paths]);
    assert.deepEqual(
      paths.filter((path) => !stdout.split('\n').includes(path)),
      [],
    );
  });
});
