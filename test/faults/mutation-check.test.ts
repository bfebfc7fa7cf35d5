/**
 * The mutation check takes its while (`npm run mutation`); that its faults still apply, and are spread over
 * lib, is seen at once.
 */
import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { findingsOf, runTests } from '../../scripts/mutation-check.ts';
import { MUTATIONS } from '../../scripts/mutations/all.ts';
import { type Mutation, mutated } from '../../scripts/mutations/mutation.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** The folder of lib that a file is in; `lib` for what is in none. */
const roomOf = (file: string): string => /^lib\/([^/]+)\//.exec(file)?.[1] ?? 'lib';

/** Sums by room. */
function byRoom(files: readonly string[], weigh: (file: string) => number): Map<string, number> {
  const sums = new Map<string, number>();
  for (const file of files) sums.set(roomOf(file), (sums.get(roomOf(file)) ?? 0) + weigh(file));
  return sums;
}

describe('the mutation check', () => {
  for (const mutation of MUTATIONS) {
    it(`has an edit that applies, and existing test files, for the defence: ${mutation.defence}`, () => {
      const source = read(mutation.file);
      assert.notEqual(mutated(source, mutation), source);
      for (const { file, names } of mutation.tests) {
        assert.ok(existsSync(join(ROOT, file)), file);
        assert.ok(names.length > 0, file);
      }
    });
  }

  it('throws if an edit no longer applies, or applies in two places', () => {
    const finds = (MUTATIONS[0] as Mutation).edits.map(({ find }) => find).join(' ');
    for (const source of ['', `${finds} ${finds}`]) {
      assert.throws(() => mutated(source, MUTATIONS[0] as Mutation), /exactly once/);
    }
  });

  it('has at least 60 mutations, each with a description of its own', () => {
    assert.ok(MUTATIONS.length >= 60, `${MUTATIONS.length}`);
    assert.equal(new Set(MUTATIONS.map(({ defence }) => defence)).size, MUTATIONS.length);
  });

  it('has mutations in every directory of lib: at least two thirds of its share by lines, less one', () => {
    const files = globSync('lib/**/*.ts', { cwd: ROOT }).map((file) => file.replaceAll('\\', '/'));
    const lines = byRoom(files, (file) => read(file).split('\n').length);
    const all = [...lines.values()].reduce((sum, count) => sum + count);
    const faults = byRoom(
      MUTATIONS.map(({ file }) => file),
      () => 1,
    );
    assert.ok(lines.size >= 16, `${[...lines.keys()]}`);
    for (const [room, count] of lines) {
      const share = (MUTATIONS.length * count) / all;
      const found = faults.get(room) ?? 0;
      assert.ok(found >= 1, `${room} has no fault`);
      assert.ok(
        found >= (share * 2) / 3 - 1,
        `${room} has ${found} faults, by its lines ${share.toFixed(1)}`,
      );
    }
  });

  it('reports tests that pass and tests that do not run; if the file hangs, an unfinished test counts as failed', () => {
    const ended = { passed: new Set(['a']), failed: new Set(['b']) };
    const names = ['a', 'b', 'c'];
    assert.deepEqual(findingsOf(names, { ...ended, hung: false }), ['stays green: a', 'did not run: c']);
    assert.deepEqual(findingsOf(names, { ...ended, hung: true }), ['stays green: a']);
  });

  it('runs the named tests of a file in the given tree, and kills a file that hangs', async () => {
    const tree = temporaryDirectory('mutation-check-');
    const write = (file: string, ...tests: string[]): void =>
      writeFileSync(join(tree, file), `import { describe, it } from 'node:test';\n${tests.join('\n')}`);
    write(
      'ends.test.mjs',
      "describe('some', () => { it('hold', () => {}); it('do not (yet)', () => { throw new Error('no'); }); });",
      "it('hold', () => {});",
    );
    const names = ['some hold', 'some do not (yet)', 'some are gone'];
    assert.deepEqual(await runTests(tree, 'ends.test.mjs', names), {
      passed: new Set(['some hold']),
      failed: new Set(['some do not (yet)']),
      hung: false,
    });
    write('hangs.test.mjs', "process.on('SIGTERM', () => {});", "it('hangs', () => { for (;;); });");
    const { passed, hung } = await runTests(tree, 'hangs.test.mjs', ['hangs'], { file: 2_000 });
    assert.deepEqual([[...passed], hung], [[], true]);
  });
});
