import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { validateHeaderValue } from 'node:http';
import { describe, it } from 'node:test';
import { protectionHeaders } from '../../lib/envelope/protection.ts';
import { keyOf } from '../support/evidence/engine.ts';
import { EXCHANGE, hex } from '../support/remote/exchange-fixture.ts';
import policies from '../vectors/inference/ocsp-headers.json' with { type: 'json' };

const { vectors, derivation } = policies;

const attempt = {
  secretId: EXCHANGE.id,
  key: EXCHANGE.key,
  model: 'm',
  shardKey: 'abc-D',
  gpuPolicy: { allowUnknown: true, gracePeriodHours: 48 },
  nowMs: 1_700_172_800_000,
};

/** The policy and its MAC among the headers. */
function policyHeaders(options: Partial<typeof attempt>): (string | undefined)[] {
  const headers = protectionHeaders({ ...attempt, ...options });
  return [headers['Privatemode-NVIDIA-OCSP-Policy'], headers['Privatemode-NVIDIA-OCSP-Policy-MAC']];
}

describe('GPU certificate-status policy', () => {
  for (const { statuses, unix, secretHex, policy, mac } of vectors) {
    it(`is that of the vector: ${statuses.join(',')} since ${unix}, secret of ${secretHex.length / 2} bytes`, () => {
      const gracePeriodHours = statuses.includes('allow-revoked') ? 5 : 0;
      const gpuPolicy = { allowUnknown: statuses.includes('allow-unknown'), gracePeriodHours };
      const nowMs = 1000 * (unix + 3600 * gracePeriodHours);
      const key = keyOf(hex(secretHex));
      assert.deepEqual(policyHeaders({ gpuPolicy, nowMs, key }), [policy, mac]);
    });
  }

  for (const row of derivation) {
    if ('error' in row) continue; // refused where flags are read, in config
    const { allowUnknown, gracePeriodHours, nowUnix, statuses, unix } = row;
    it(`follows from the flags: unknown ${allowUnknown}, grace ${gracePeriodHours} h`, () => {
      const gpuPolicy = { allowUnknown, gracePeriodHours };
      const [policy, mac] = policyHeaders({ gpuPolicy, nowMs: nowUnix * 1000 + 999 });
      assert.equal(policy, `rules=${statuses.join(',')}; revocation-time-not-before=${unix}`);
      assert.equal(mac, createHmac('sha256', EXCHANGE.secret).update(policy).digest('hex'));
    });
  }
});

describe('protection headers of an attempt', () => {
  it('are the secret id, the model, the shard key, the policy and its MAC', () => {
    assert.deepEqual(protectionHeaders(attempt), {
      'Privatemode-Secret-ID': EXCHANGE.id,
      'Privatemode-Target-Model': 'm',
      'Privatemode-Shard-Key': 'abc-D',
      'Privatemode-NVIDIA-OCSP-Policy':
        'rules=allow-good,allow-revoked,allow-unknown; revocation-time-not-before=1700000000',
      'Privatemode-NVIDIA-OCSP-Policy-MAC':
        '89ac6b325638c36343ce41af0a194a7afc4461c83d903a55b4554f269e5b781c',
    });
  });

  it('leave out model and shard key if there are none', () => {
    const headers = protectionHeaders({ ...attempt, model: undefined, shardKey: undefined });
    assert.equal('Privatemode-Target-Model' in headers, false);
    assert.equal('Privatemode-Shard-Key' in headers, false);
  });

  it('carry the UTF-8 bytes of the model as latin1, so that no name is an invalid header', () => {
    for (const model of ['модель-7', 'm\u{1f600}', 'm\u0085x', 'm  x', '\u00a0m']) {
      const value = protectionHeaders({ ...attempt, model })['Privatemode-Target-Model']!;
      validateHeaderValue('Privatemode-Target-Model', value);
      assert.equal(Buffer.from(value, 'latin1').toString('utf8'), model);
    }
  });
});
