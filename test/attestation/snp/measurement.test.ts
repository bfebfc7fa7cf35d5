import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sha256, sha384 } from '#crypto';
import { parseManifest } from '../../../lib/attestation/manifest.ts';
import {
  acceptedMeasurements,
  apVmsaPage,
  idKeyDigest,
  measurements,
} from '../../../lib/attestation/snp/launch-digest.ts';
import { guestPolicyValue } from '../../../lib/attestation/snp/packed-fields.ts';
import { vectorBytes, vectorJson } from '../../support/evidence/attestation-vectors.ts';
import { fromHex, toHex } from '../../support/evidence/wycheproof.ts';

interface Expected {
  readonly snp: {
    readonly ap_vmsa_page_nonzero: Record<string, string>;
    readonly ap_vmsa_page_sha384: string;
    readonly accepted: { readonly vcpus: number; readonly measurement: string }[];
  }[];
}
const EXPECTED = vectorJson<Expected>('contrast/privatemode_manifest_v1.58.0.expected.json').snp[0];
const ENTRY = parseManifest(vectorBytes('contrast/privatemode_manifest_v1.58.0.json')).snp[0];
assert.ok(EXPECTED && ENTRY);
const APEIP = 0x0080b004;
const PAGE = apVmsaPage(APEIP, 'Genoa');

describe('measurements with APEIP (docs/protocol/attestation.md 19.4)', () => {
  it('use the expected VMSA page of an application processor', () => {
    const page = apVmsaPage(APEIP, 'Genoa');
    const nonzero = [...page.entries()].filter(([, byte]) => byte !== 0);
    const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
    assert.deepEqual(
      Object.fromEntries(nonzero.map(([offset, byte]) => [hex(offset, 3), hex(byte, 2)])),
      EXPECTED.ap_vmsa_page_nonzero,
    );
    assert.equal(page.length, 4096);
    assert.equal(toHex(sha384(page)), EXPECTED.ap_vmsa_page_sha384);
    assert.notEqual(toHex(sha384(apVmsaPage(APEIP, 'Milan'))), EXPECTED.ap_vmsa_page_sha384);
    assert.equal(toHex(apVmsaPage(0xffffffff, 'Genoa').subarray(0x18, 0x20)), '0000ffff00000000');
    const signature = (product: 'Genoa' | 'Milan'): number =>
      new DataView(apVmsaPage(APEIP, product).buffer).getUint32(0x310, true);
    assert.deepEqual([signature('Milan'), signature('Genoa')], [0x00a00f11, 0x00a10f10]);
    assert.equal(toHex(apVmsaPage(0xfffff012, 'Genoa').subarray(0x18, 0x20)), '0000ffff00000000');
  });

  it('have the expected 220 values for the live manifest, and the expected ID keys', () => {
    const all = [...measurements(ENTRY.trustedMeasurement, PAGE)];
    assert.equal(all.length, 220);
    assert.equal(toHex(sha256(...all)), '366af890912a6758f33ea886646d39791f2851d01dfd35c7f0af8850adb9753d');
    const policy = guestPolicyValue(ENTRY.guestPolicy);
    assert.equal(
      toHex(sha256(...all.map((measurement) => idKeyDigest(measurement, policy)))),
      'd2dc5c1f3e2a24d92e22d33a0efd26263f7e14660f57a4585b9f3a805d0bdf50',
    );
  });

  it('are recognised with their vCPU count', () => {
    for (const { vcpus, measurement } of EXPECTED.accepted) {
      assert.deepEqual(acceptedMeasurements(ENTRY)[vcpus - 1], fromHex(measurement));
    }
    assert.equal(acceptedMeasurements(ENTRY).length, 220);
  });

  it('are compared exactly if the manifest has no APEIP', () => {
    assert.deepEqual(acceptedMeasurements({ ...ENTRY, apeip: undefined }), [ENTRY.trustedMeasurement]);
  });

  it('extend the published 1-vCPU digest of another tool to its published 4-vCPU digest', () => {
    const published = vectorJson<{ apeip_cross_check: Record<string, Record<string, string>> }>(
      'contrast/privatemode_manifest_v1.58.0.expected.json',
    ).apeip_cross_check;
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
