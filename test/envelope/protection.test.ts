import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { describe, it } from 'node:test';
import { gpuPolicyHeaders, gpuPolicyMac, gpuPolicyText } from '../../lib/envelope/gpu-policy.ts';
import { PROTOCOL_VERSION, protectionHeaders } from '../../lib/envelope/protection.ts';
import { EXCHANGE, hex, inferenceVectors } from '../support/exchange-fixture.ts';

interface PolicyVectors {
  readonly vectors: readonly {
    readonly statuses: readonly string[];
    readonly unix: number;
    readonly secretHex: string;
    readonly policy: string;
    readonly mac: string;
  }[];
  readonly derivation: readonly (
    | { readonly error: string }
    | {
        readonly allowUnknown: boolean;
        readonly gracePeriodHours: number;
        readonly nowUnix: number;
        readonly statuses: readonly string[];
        readonly unix: number;
      }
  )[];
}

const { vectors, derivation } = inferenceVectors<PolicyVectors>('ocsp-headers');

describe('GPU certificate-status policy', () => {
  for (const { statuses, unix, secretHex, policy, mac } of vectors) {
    it(`${statuses.join(',')} since ${unix}, secret of ${secretHex.length / 2} bytes`, () => {
      assert.equal(gpuPolicyText(statuses, unix), policy);
      assert.equal(gpuPolicyMac(policy, createSecretKey(hex(secretHex))), mac);
    });
  }

  for (const row of derivation) {
    if ('error' in row) continue; // refused where flags are read, in config
    const { allowUnknown, gracePeriodHours, nowUnix, statuses, unix } = row;
    it(`unknown ${allowUnknown}, grace ${gracePeriodHours} h`, () => {
      const nowMs = nowUnix * 1000 + 999;
      const { policy, mac } = gpuPolicyHeaders({ allowUnknown, gracePeriodHours, nowMs, key: EXCHANGE.key });
      assert.equal(policy, gpuPolicyText(statuses, unix));
      assert.equal(mac, gpuPolicyMac(policy, EXCHANGE.key));
    });
  }

  it('uses the first 32 bytes of a longer secret, and refuses a shorter one', () => {
    const long = createSecretKey(Buffer.concat([EXCHANGE.key.export(), Buffer.from('more')]));
    assert.equal(gpuPolicyMac('p', long), gpuPolicyMac('p', EXCHANGE.key));
    assert.throws(() => gpuPolicyMac('p', createSecretKey(Buffer.alloc(31))), { code: 'internal' });
  });
});

describe('protection headers of an attempt', () => {
  const attempt = {
    secretId: EXCHANGE.id,
    key: EXCHANGE.key,
    model: 'm',
    shardKey: 'abc-D',
    gpuPolicy: { allowUnknown: true, gracePeriodHours: 48 },
    nowMs: 1_700_172_800_000,
  };

  it('are the version, the secret id, the model, the shard key, the policy and its MAC', () => {
    assert.deepEqual(protectionHeaders(attempt), {
      'Privatemode-Version': 'v1.40.0',
      'Privatemode-Secret-ID': EXCHANGE.id,
      'Privatemode-Target-Model': 'm',
      'Privatemode-Shard-Key': 'abc-D',
      'Privatemode-NVIDIA-OCSP-Policy':
        'rules=allow-good,allow-revoked,allow-unknown; revocation-time-not-before=1700000000',
      'Privatemode-NVIDIA-OCSP-Policy-MAC':
        '89ac6b325638c36343ce41af0a194a7afc4461c83d903a55b4554f269e5b781c',
    });
  });

  it('leave out model and shard key where there are none', () => {
    const headers = protectionHeaders({ ...attempt, model: undefined, shardKey: undefined });
    assert.equal('Privatemode-Target-Model' in headers, false);
    assert.equal('Privatemode-Shard-Key' in headers, false);
  });

  it('carry the UTF-8 bytes of the model as latin1, so that no name is an invalid header', () => {
    const value = protectionHeaders({ ...attempt, model: 'modèl-😀' })['Privatemode-Target-Model']!;
    assert.equal(Buffer.from(value, 'latin1').toString('utf8'), 'modèl-😀');
  });

  it('announce the generation implemented', () => {
    assert.equal(PROTOCOL_VERSION, 'v1.40.0');
  });
});
