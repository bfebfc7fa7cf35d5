/** A verification waits for each of its checks, and accepts nothing without all of them. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { type CheckRow, Checks, finding } from '../../lib/attestation/check.ts';
import { ROWS_OF, verify } from '../../lib/attestation/verify-evidence.ts';
import { attestedBy } from '../support/evidence/snp-platform.ts';
import { syntheticInput } from '../support/evidence/tdx-vectors.ts';
import { settle } from '../support/remote/fake-clock.ts';

describe('verification of evidence', () => {
  for (const [tee, input] of [
    ['snp', attestedBy({})],
    ['tdx', syntheticInput()],
  ] as const) {
    const rows = ROWS_OF[tee] as unknown as readonly (CheckRow<never> & { judge: () => unknown })[];
    const slowly = (t: TestContext, outcome: (id: string) => boolean): void => {
      for (const row of rows) {
        t.mock.method(row, 'judge', async () => {
          // One that fails takes longer than all others together.
          await settle(outcome(row.id) ? 1 : 500);
          return finding(outcome(row.id), `the finding of ${row.id}`);
        });
      }
    };

    it(`waits for every check of ${tee}, however long each takes`, async (t) => {
      slowly(t, () => true);
      const { outcome, checks } = await verify(input);
      assert.equal(outcome, 'accepted');
      assert.deepEqual(
        checks.map(({ found }) => found),
        rows.map(({ id }) => `the finding of ${id}`),
      );
    });

    it(`refuses evidence of ${tee} if any one of its checks fails, by that check`, async (t) => {
      for (const { id } of rows) {
        slowly(t, (each) => each !== id);
        const { outcome, failure, meshCaPem } = await verify(input);
        assert.notEqual(outcome, 'accepted');
        assert.deepEqual([failure?.id, meshCaPem], [id, undefined]);
        t.mock.restoreAll();
      }
    });

    it(`refuses evidence of ${tee} if the results of some of its checks are missing`, async (t) => {
      for (const missing of [rows.slice(0, 1), rows.slice(-1), rows]) {
        const run = Checks.prototype.run;
        t.mock.method(
          Checks.prototype,
          'run',
          function (this: Checks, stage: readonly CheckRow<unknown>[], subject: unknown) {
            return run.call(
              this,
              stage.filter((row) => !missing.some(({ id }) => id === row.id)),
              subject,
            );
          },
        );
        assert.equal((await verify(input)).outcome, 'rejected');
        t.mock.restoreAll();
      }
    });
  }
});
