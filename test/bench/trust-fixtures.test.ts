import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answeredExchange, EVIDENCE } from '../../bench/trust-fixtures.ts';
import { verify } from '../../lib/attestation/verify.ts';

describe('fixtures of the micro benches of the trust path', () => {
  for (const tee of ['snp', 'tdx'] as const) {
    it(`are ${tee} evidence that is accepted, every time`, async () => {
      for (let i = 0; i < 2; i++) {
        const verdict = await verify(EVIDENCE[tee]);
        assert.equal(verdict.failure, undefined);
        assert.deepEqual([verdict.outcome, verdict.tee], ['accepted', tee]);
      }
    });
  }

  it('are an exchange that gives both sides the same secret, every time', async () => {
    const { theirs, complete } = await answeredExchange();
    for (let i = 0; i < 2; i++) assert.deepEqual((await complete()).key.export(), Buffer.from(theirs));
    assert.notDeepEqual((await answeredExchange()).theirs, theirs);
  });
});
