/** The judgement itself: what becomes of errors in the secret exchange, once the evidence is accepted. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { judge } from '../../lib/verdict/judge.ts';
import type { Judgement } from '../../lib/verdict/verdict.ts';
import { syntheticInput } from '../support/evidence/attestation-vectors.ts';

/** Accepted evidence whose secret exchange ends with this error. */
function judgeFailing(error: Error): Promise<Judgement> {
  const { now: at, ...input } = syntheticInput('synthetic_v158');
  const secret = (): Promise<never> => Promise.reject(error);
  const canBeOpened = (): Promise<boolean> => assert.fail('there is nothing to open');
  return judge({ ...input, at, secret, canBeOpened, live: true });
}

describe('a secret exchange that fails', () => {
  for (const [code, outcome] of [
    ['upstream_unreachable', 'unavailable'],
    ['secret_exchange_failed', 'malformed'],
    ['evidence_malformed', 'malformed'],
  ] as const) {
    it(`with ${code} is a judgement: ${outcome}`, async () => {
      const error = new PrivatemodeError(code, 'as it happens');
      const judgement = await judgeFailing(error);
      assert.equal(judgement.outcome, outcome);
      assert.deepEqual(judgement.failure, { check: undefined, error });
      assert.ok(judgement.checks.some(({ id, outcome }) => id === 'nonce.length' && outcome === 'pass'));
      const secret = judgement.checks.filter(({ id }) => id.startsWith('secret.'));
      assert.ok(secret.length > 0 && secret.every(({ outcome }) => outcome === 'not-evaluated'));
    });
  }

  it('by a defect of ours is no judgement', async () => {
    const defect = new TypeError('a defect');
    await assert.rejects(judgeFailing(defect), (error) => error === defect);
  });
});
