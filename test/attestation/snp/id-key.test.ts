import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import { p384 } from '@noble/curves/nist.js';
import { sha384 } from '#crypto';
import { parseManifest } from '../../../lib/attestation/manifest.ts';
import { idBlock, idKey, idKeyDigest } from '../../../lib/attestation/snp/launch-digest.ts';
import { guestPolicyValue } from '../../../lib/attestation/snp/packed-fields.ts';
import { vectorBytes, vectorJson } from '../../support/evidence/attestation-vectors.ts';
import { fromHex, toHex } from '../../support/evidence/wycheproof.ts';

const GOLDEN = Uint8Array.from({ length: 48 }, (_, index) => index + 1);
const hex = (value: bigint): string => value.toString(16).padStart(96, '0');

interface Accepted {
  readonly vcpus: number;
  readonly measurement: string;
  readonly id_key_digest: string;
  readonly id_block?: string;
}
const LIVE = vectorJson<{ snp: { accepted: Accepted[] }[] }>(
  'contrast/privatemode_manifest_v1.58.0.expected.json',
);

describe('the ID key', () => {
  it('equals the known value for two guest policies (docs/protocol/attestation.md 17)', () => {
    assert.equal(
      toHex(sha384(idBlock(GOLDEN, 0x30000n))),
      '46ca0e3fdc027ad9e8aeb04b49daf6151b9b9ffd8862aa386b6e01a1b0d33f7b3d04402ed80f7a21cee34ea036714da0',
    );
    assert.deepEqual(Object.values(idKey(GOLDEN, 0x30000n)).map(hex), [
      '07810d909a0cfecd5b4574aec8f6d6ea3d2cce3d25b1732ec73d1fb37c693ac66952ffaa927e714a2efdb0930570d99b',
      '4a9bd253301a754bc4f0f3b8c1b35290e2910fd963a4b45fd7b41ad7c034a93fbd560558c97b00749c98ce68ad23ee37',
    ]);
    assert.equal(
      toHex(idKeyDigest(GOLDEN, 0x30000n)),
      '509a5e09cffe0f5dd47d401e719f2d1b72a5e5bd8f3a92ffd9b3a436c3f461102b2e8ed95579e467e112f98a5adea4d3',
    );
    assert.deepEqual(Object.values(idKey(GOLDEN, 0x2030000n)).map(hex), [
      '47c737de36e280dd5af8633cda5ac50f9dc84d37ff0ee21b23772c51847fa2141e3bed33233b314f1611376aeeb4d015',
      '227e03e7cf03be9081cf282380572866990789d826c28db102115f153bd7613f03b5e082401a48920a0b1700d911d699',
    ]);
    assert.equal(
      toHex(idKeyDigest(GOLDEN, 0x2030000n)),
      '0904c1ac37e2399a216aacea6f4a15e82817dd0ec0018d39bb3356ab1e30e5c2bdb366f4e897f132c0ffe7c7e581c8ea',
    );
  });

  it('is derived from half of the curve point whose x is 2', () => {
    const { p, n, b } = p384.Point.CURVE();
    const u1G = p384.Point.BASE.multiply(
      ((n - (BigInt(`0x${toHex(sha384(idBlock(GOLDEN, 0x30000n)))}`) % n)) * ((n + 1n) / 2n)) % n,
    );
    const half = p384.Point.fromAffine(idKey(GOLDEN, 0x30000n)).subtract(u1G);
    const whole = half.double().toAffine();
    assert.equal(whole.x, 2n);
    assert.equal((whole.y * whole.y) % p, (8n - 6n + b) % p);
  });

  it('verifies the constant signature (2, 1) that it is recovered from', () => {
    const { n } = p384.Point.CURVE();
    for (const policy of [0x30000n, 0x2030000n, 0x252013an]) {
      const z = BigInt(`0x${toHex(sha384(idBlock(GOLDEN, policy)))}`);
      const Q = p384.Point.fromAffine(idKey(GOLDEN, policy));
      // s = 1, so u1 = z and u2 = r = 2.
      const R = p384.Point.BASE.multiply(z % n).add(Q.multiply(2n));
      assert.equal(R.toAffine().x, 2n);
    }
  });

  it('has the expected digest for each listed vCPU count of the live manifest (docs/protocol/attestation.md 19.13)', () => {
    const [entry] = parseManifest(vectorBytes('contrast/privatemode_manifest_v1.58.0.json')).snp;
    assert.ok(entry);
    const policy = guestPolicyValue(entry.guestPolicy);
    assert.equal(policy, 0x252013an);
    const accepted = LIVE.snp[0]?.accepted ?? [];
    assert.equal(accepted.length, 14);
    for (const row of accepted) {
      const measurement = fromHex(row.measurement);
      if (row.id_block !== undefined) assert.equal(toHex(idBlock(measurement, policy)), row.id_block);
      assert.equal(toHex(idKeyDigest(measurement, policy)), row.id_key_digest, `${row.vcpus} vCPUs`);
    }
    assert.ok(accepted.filter((row) => row.id_block !== undefined).length >= 2);
  });

  it('differs between guest policies and between measurements', () => {
    const digests = [0x20000n, 0x30000n, 0x120000n].map((policy) => toHex(idKeyDigest(GOLDEN, policy)));
    assert.equal(new Set(digests).size, 3);
    const other = createHash('sha384').update('other').digest();
    assert.notEqual(toHex(idKeyDigest(other, 0x20000n)), digests[0]);
  });
});
