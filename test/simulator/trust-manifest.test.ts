import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { before, describe, it } from 'node:test';
import { parseManifest } from '../../lib/attestation/manifest.ts';
import { decodeSnpAttestation } from '../../lib/attestation/snp/report.ts';
import { snpEvidence } from '../../simulator/evidence/snp.ts';
import { createFaults } from '../../simulator/faults.ts';
import type { Hardware } from '../../simulator/hardware.ts';
import { buildManifest } from '../../simulator/manifest.ts';
import { sharedHardware } from '../support/simulator.ts';

interface ManifestJson {
  readonly Policies: Readonly<Record<string, { readonly SANs: string[]; readonly Role?: string }>>;
  readonly ReferenceValues: Readonly<Record<'snp' | 'tdx', Record<string, unknown>[]>>;
  readonly SeedshareOwnerPubKeys: string[];
}

const LIVE = new URL('../vectors/attestation/contrast/privatemode_manifest_v1.58.0.json', import.meta.url);
const jsonOf = (bytes: Uint8Array): ManifestJson => JSON.parse(Buffer.from(bytes).toString('utf8'));
const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

describe('the manifest of the simulated deployment', () => {
  let hardware: Hardware;
  before(async () => {
    hardware = await sharedHardware();
  });

  it('passes manifest validation', () => {
    assert.doesNotThrow(() => parseManifest(buildManifest(hardware, 0).bytes));
  });

  it('has the members and reference values of the live one, but for the ids of our own chips', () => {
    const [ours, live] = [jsonOf(buildManifest(hardware, 0).bytes), jsonOf(readFileSync(LIVE))];
    assert.deepEqual(Object.keys(ours), Object.keys(live));
    for (const [kind, member, id] of [
      ['snp', 'AllowedChipIDs', hexOf(hardware.ids.chipId).toUpperCase()],
      ['tdx', 'AllowedPIIDs', hexOf(hardware.ids.piid)],
    ] as const) {
      const [entry, ...more] = ours.ReferenceValues[kind];
      assert.deepEqual(more, []);
      assert.deepEqual(entry?.[member], [id]);
      assert.deepEqual({ ...entry, [member]: [] }, { ...live.ReferenceValues[kind][0], [member]: [] });
    }
  });

  it('lists its policy documents by their SHA-256, one of them the coordinator', () => {
    const { bytes, policies, coordinatorHash, sha256 } = buildManifest(hardware, 0);
    const entries = jsonOf(bytes).Policies;
    const hashes = policies.map((document) => createHash('sha256').update(document).digest('hex'));
    assert.deepEqual(hashes.sort(), Object.keys(entries));
    const coordinators = Object.entries(entries).filter(([, { Role }]) => Role === 'coordinator');
    assert.deepEqual(
      coordinators.map(([hash]) => hash),
      [hexOf(coordinatorHash)],
    );
    assert.equal(sha256, createHash('sha256').update(bytes).digest('hex'));
  });

  it('follows from hardware and revision alone', () => {
    const [first, again, next] = [0, 0, 1].map((revision) => buildManifest(hardware, revision));
    assert.equal(first?.sha256, again?.sha256);
    assert.notEqual(first?.sha256, next?.sha256);
    assert.notDeepEqual(first?.coordinatorHash, next?.coordinatorHash);
  });
});

describe('the SEV-SNP report of the simulated coordinator', () => {
  it('carries the golden measurement and ID key digest of the live guest with two vCPUs', async () => {
    const { report, certificates } = decodeSnpAttestation(
      snpEvidence({
        hardware: await sharedHardware(),
        reportData: new Uint8Array(64).fill(1),
        coordinatorHash: new Uint8Array(32).fill(2),
        faults: createFaults(),
      }),
    );
    // docs/protocol/attestation.md 19.13, vcpus 2
    assert.equal(
      hexOf(report.measurement),
      '7a8f57a9b9124cdfd0bad065e16b16cf535bac01d591fd563990083bed33fb5952b70abee4f604ddb84c9c24b0cbd63c',
    );
    assert.equal(
      hexOf(report.idKeyDigest),
      '4d4bb65e6459ac766ec81f2646b3aec629a6d242ab1d9acd04425fd219a3980bac44f5212e136a80e068f0a119c371c6',
    );
    assert.equal(report.version, 5);
    assert.equal(report.policy, 0x252013an);
    assert.deepEqual([report.currentMajor, report.currentMinor, report.currentBuild], [1, 58, 1]);
    assert.deepEqual([report.launchMitVector, report.currentMitVector], [0xfn, 0xfn]);
    assert.equal(hexOf(report.reportData), '01'.repeat(64));
    assert.equal(hexOf(report.hostData), '02'.repeat(32));
    assert.ok(certificates.vcek);
    assert.equal(certificates.extras.size, 1);
  });
});
