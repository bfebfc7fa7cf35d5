/** A property with a defect that can be switched on, for regressions.test.ts; run by itself it is green. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';

const DEFECT = process.env['PLANTED_DEFECT'] !== undefined;

describe('planted', () => {
  it('a property', async () => {
    fc.assert(
      fc.property(fc.nat(), (number) => assert.ok(number >= 0)),
      { seed: 1, interruptAfterTimeLimit: 200 }, // the other one is what the test waits for
    );
    await fc.assert(
      fc.asyncProperty(fc.uint8Array(), fc.nat({ max: 1_000 }), async (bytes, number) => {
        assert.ok(!DEFECT || bytes.length < 3 || number < 7);
      }),
      { seed: 1, numRuns: 1 },
    );
  });
});
