/** What a guest measures at its launch, and the key of its ID block. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sha256, sha384 } from '#crypto';
import { parseManifest } from '../../../lib/attestation/manifest.ts';
import {
  acceptedMeasurements,
  apVmsaPage,
  idBlock,
  idKeyDigest,
  measurements,
} from '../../../lib/attestation/snp/launch-digest.ts';
import { guestPolicyValue } from '../../../lib/attestation/snp/packed-fields.ts';
import { vectorBytes, vectorJson } from '../../support/evidence/attestation-vectors.ts';
import { fromHex, toHex } from '../../support/evidence/wycheproof.ts';

interface Accepted {
  readonly vcpus: number;
  readonly measurement: string;
  readonly id_key_digest: string;
  readonly id_block?: string;
}
interface Expected {
  readonly snp: {
    readonly ap_vmsa_page_sha384: string;
    readonly accepted: Accepted[];
  }[];
  readonly apeip_cross_check: Record<string, Record<string, string>>;
}
const { snp, apeip_cross_check: published } = vectorJson<Expected>(
  'contrast/privatemode_manifest_v1.58.0.expected.json',
);
const EXPECTED = snp[0];
const ENTRY = parseManifest(vectorBytes('contrast/privatemode_manifest_v1.58.0.json')).snp[0];
assert.ok(EXPECTED && ENTRY);
const APEIP = 0x0080b004;
const PAGE = apVmsaPage(APEIP, 'Genoa');
const POLICY = guestPolicyValue(ENTRY.guestPolicy);

describe('measurements with APEIP (docs/protocol/attestation.md 19.4)', () => {
  it('use the expected VMSA page of an application processor', () => {
    assert.equal(toHex(sha384(PAGE)), EXPECTED.ap_vmsa_page_sha384);
    assert.notEqual(toHex(sha384(apVmsaPage(APEIP, 'Milan'))), EXPECTED.ap_vmsa_page_sha384);
    assert.equal(toHex(apVmsaPage(0xffffffff, 'Genoa').subarray(0x18, 0x20)), '0000ffff00000000');
    const signature = (product: 'Genoa' | 'Milan'): number =>
      new DataView(apVmsaPage(APEIP, product).buffer).getUint32(0x310, true);
    assert.deepEqual([signature('Milan'), signature('Genoa')], [0x00a00f11, 0x00a10f10]);
    assert.equal(toHex(apVmsaPage(0xfffff012, 'Genoa').subarray(0x18, 0x20)), '0000ffff00000000');
  });

  it('have the expected 220 values for the live manifest, and the expected ID keys', () => {
    const all = acceptedMeasurements(ENTRY);
    assert.equal(all.length, 220);
    assert.equal(toHex(sha256(...all)), '366af890912a6758f33ea886646d39791f2851d01dfd35c7f0af8850adb9753d');
    assert.equal(
      toHex(sha256(...all.map((measurement) => idKeyDigest(measurement, POLICY)))),
      'd2dc5c1f3e2a24d92e22d33a0efd26263f7e14660f57a4585b9f3a805d0bdf50',
    );
  });

  it('are compared exactly if the manifest has no APEIP', () => {
    assert.deepEqual(acceptedMeasurements({ ...ENTRY, apeip: undefined }), [ENTRY.trustedMeasurement]);
  });

  it('extend the published 1-vCPU digest of another tool to its published 4-vCPU digest', () => {
    for (const [name, sevFeatures] of [
      ['sev_features_1', 0x01],
      ['sev_features_0x21', 0x21],
    ] as const) {
      const page = apVmsaPage(APEIP, 'Genoa');
      new DataView(page.buffer).setUint32(0x310, 0x00800f12, true);
      page[0x3b0] = sevFeatures;
      const [, , , four] = measurements(fromHex(published[name]?.['vcpus_1'] ?? ''), page);
      assert.equal(toHex(four as Uint8Array), published[name]?.['vcpus_4']);
    }
  });
});

const GOLDEN = Uint8Array.from({ length: 48 }, (_, index) => index + 1);

describe('the ID key', () => {
  it('equals the known value for two guest policies (docs/protocol/attestation.md 17)', () => {
    assert.equal(
      toHex(sha384(idBlock(GOLDEN, 0x30000n))),
      '46ca0e3fdc027ad9e8aeb04b49daf6151b9b9ffd8862aa386b6e01a1b0d33f7b3d04402ed80f7a21cee34ea036714da0',
    );
    assert.equal(
      toHex(idKeyDigest(GOLDEN, 0x30000n)),
      '509a5e09cffe0f5dd47d401e719f2d1b72a5e5bd8f3a92ffd9b3a436c3f461102b2e8ed95579e467e112f98a5adea4d3',
    );
    assert.equal(
      toHex(idKeyDigest(GOLDEN, 0x2030000n)),
      '0904c1ac37e2399a216aacea6f4a15e82817dd0ec0018d39bb3356ab1e30e5c2bdb366f4e897f132c0ffe7c7e581c8ea',
    );
  });
});
