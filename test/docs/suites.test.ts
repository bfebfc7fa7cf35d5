/**
 * Which tests run when is written down, and true; and what documented commands write does not get into the
 * tree.
 */
import assert from 'node:assert/strict';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { replaceSection } from '../../scripts/marked-section.ts';
import { BY_ITSELF, isIn, REPEATED, RUNS, variablesOf } from '../suites.ts';
import { ROOT, run } from '../support/processes/tools.ts';

const CONTRIBUTING = join(ROOT, 'CONTRIBUTING.md');
const FILES = globSync('test/**/*.test.ts', { cwd: ROOT }).sort();

describe('the suites of tests', () => {
  it('name only files that exist', () => {
    const tables = [REPEATED, BY_ITSELF].flatMap(Object.keys);
    for (const path of [...tables, ...RUNS.flatMap(({ paths }) => paths)]) {
      assert.ok(
        FILES.some((file) => isIn({ [path]: '' }, file)),
        path,
      );
    }
  });

  it('that only npm run test:all runs are exactly those in the table of CONTRIBUTING.md, each with what it proves', () => {
    const runs = RUNS.map((run) => [`${variablesOf(run)} npm test`, run.proves]);
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
