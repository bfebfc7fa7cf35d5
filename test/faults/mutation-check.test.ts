/** The mutation check takes its while (`npm run mutation`); that its patches still apply is seen at once. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { MUTATIONS, type Mutation, mutated } from '../../scripts/mutation-check.ts';

describe('the mutation check', () => {
  for (const mutation of MUTATIONS) {
    it(`can take away ${mutation.defence}`, () => {
      const source = readFileSync(join(import.meta.dirname, '../..', mutation.file), 'utf8');
      assert.notEqual(mutated(source, mutation), source);
    });
  }

  it('fails where a patch does not apply any more, or in two places', () => {
    const finds = (MUTATIONS[0] as Mutation).edits.map(({ find }) => find).join(' ');
    for (const source of ['', `${finds} ${finds}`]) {
      assert.throws(() => mutated(source, MUTATIONS[0] as Mutation), /exactly once/);
    }
  });
});
