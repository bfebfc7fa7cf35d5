import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answeredExchange, EVIDENCE, longestHold, NO_QUOTE } from '../../bench/trust-fixtures.ts';
import { TDX } from '../../lib/attestation/tdx/verify-tdx.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';

describe('fixtures of the micro benchmarks of attestation', () => {
  for (const tee of ['snp', 'tdx'] as const) {
    it(`are ${tee} evidence that is accepted, every time`, async () => {
      for (let i = 0; i < 2; i++) {
        const verdict = await verify(EVIDENCE[tee]);
        assert.equal(verdict.failure, undefined);
        assert.deepEqual([verdict.outcome, verdict.tee], ['accepted', tee]);
      }
    });
  }

  it('are messages of 1 MiB that are not TDX quotes', () => {
    for (const [name, message] of Object.entries(NO_QUOTE)) {
      assert.equal(message.length, 1_048_576);
      assert.throws(() => TDX.decode(message), { code: 'evidence_malformed' }, name);
    }
  });

  it('measure for how long a step blocks the event loop', async () => {
    const busy = async (): Promise<void> => {
      const end = performance.now() + 30;
      while (performance.now() < end);
    };
    assert.ok((await longestHold(busy)) >= 30);
  });

  it('are an exchange that gives both sides the same secret, every time', async () => {
    const { theirs, complete } = await answeredExchange();
    for (let i = 0; i < 2; i++) assert.deepEqual((await complete()).key.export(), Buffer.from(theirs));
    assert.notDeepEqual((await answeredExchange()).theirs, theirs);
  });
});
