/**
 * The evidence that a simulated deployment makes: beside that of the live one, under OpenSSL, and under the
 * verifier of the program.
 */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { decodeSnpAttestation } from '../../lib/attestation/snp/report.ts';
import { snpEvidence } from '../../simulator/evidence/snp.ts';
import { createFaults, FAULTS, type FaultName } from '../../simulator/faults.ts';
import { buildManifest } from '../../simulator/manifest.ts';
import { issueVcek } from '../../simulator/pki/amd.ts';
import { element, integer, oid, time } from '../../simulator/pki/der.ts';
import { issuePck, issuePlatformCa, issueTcbSigning } from '../../simulator/pki/intel.ts';
import { sgxExtension } from '../../simulator/pki/sgx-extension.ts';
import type { Simulator } from '../../simulator/simulator.ts';
import { vectorPath, verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { attestationDocument, sharedHardware, startTestSimulator } from '../support/remote/simulator.ts';

const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

describe('the DER encoder of the simulator', () => {
  const CASES: readonly (readonly [string, Uint8Array, string])[] = [
    ['a short length', element(0x04, new Uint8Array(3)), '0403000000'],
    ['the longest one-byte length', element(0x04, new Uint8Array(127)).subarray(0, 3), '047f00'],
    ['the first two-byte length', element(0x04, new Uint8Array(128)).subarray(0, 4), '04818000'],
    ['the first three-byte length', element(0x04, new Uint8Array(256)).subarray(0, 5), '0482010000'],
    ['the integer 0', integer(0), '020100'],
    ['the integer 127', integer(127), '02017f'],
    ['the integer 128 with its sign bit kept clear', integer(128), '02020080'],
    ['the integer 65536', integer(65536n), '0203010000'],
    ['an object identifier', oid('1.2.840.113549.1.1.10'), '06092a864886f70d01010a'],
    ['an object identifier with a long arc', oid('1.3.9901.3.1'), '06052bcd2d0301'],
    ['a time before 2050', time(new Date('2049-12-31T23:59:59.9Z')), '170d3439313233313233353935395a'],
    ['a time from 2050 on', time(new Date('2050-01-01T00:00:00Z')), '180f32303530303130313030303030305a'],
  ];
  for (const [name, bytes, expected] of CASES) {
    it(`encodes ${name} as ${expected}`, () => assert.equal(hexOf(bytes), expected));
  }
});

interface ManifestJson {
  readonly ReferenceValues: Readonly<Record<'snp' | 'tdx', Record<string, unknown>[]>>;
}

const jsonOf = (bytes: Uint8Array): ManifestJson => JSON.parse(Buffer.from(bytes).toString('utf8'));

describe('simulated hardware', () => {
  it('has certificates that OpenSSL chains to the roots of their vendors', async () => {
    const { keys, ids, roots } = await sharedHardware();
    const platform = issuePlatformCa(keys);
    for (const [der, issuer] of [
      [issueVcek(keys, ids.chipId, { bootloader: 12, tee: 0, snp: 28, microcode: 200 }), roots.ask],
      [roots.ask, roots.ark],
      [roots.ark, roots.ark],
      [issuePck(keys, sgxExtension(ids)), platform],
      [platform, roots.intelRoot],
      [issueTcbSigning(keys), roots.intelRoot],
      [roots.intelRoot, roots.intelRoot],
    ] as const) {
      const certificate = new X509Certificate(der);
      assert.ok(certificate.checkIssued(new X509Certificate(issuer)), certificate.subject);
      assert.ok(certificate.verify(new X509Certificate(issuer).publicKey), certificate.subject);
    }
  });

  it('has a manifest with the members and reference values of the live one, except the ids of its chips', async () => {
    const hardware = await sharedHardware();
    const live = jsonOf(readFileSync(vectorPath('contrast', 'privatemode_manifest_v1.58.0.json')));
    const ours = jsonOf(buildManifest(hardware, 0).bytes);
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

  it('reports the measurement and ID key digest that the live service has with two vCPUs', async () => {
    const { report, vcek, arkCrl } = decodeSnpAttestation(
      snpEvidence({
        hardware: await sharedHardware(),
        reportData: new Uint8Array(64).fill(1),
        coordinatorHash: new Uint8Array(32).fill(2),
        vcpus: 2,
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
    assert.ok(vcek.length > 0 && arkCrl !== undefined);
  });
});

const documentOf = async (simulator: Simulator): Promise<Record<string, unknown>> =>
  JSON.parse((await attestationDocument(simulator, new Uint8Array(32))).toString('utf8'));

describe('the attestation document of a simulated deployment', () => {
  for (const [tee, type] of [
    ['snp', [1, 3, 9901, 2, 1]],
    ['tdx', [1, 3, 9901, 2, 2]],
  ] as const) {
    it(`has the members of a live document, and another mesh CA once the mesh is rotated: ${tee}`, async (t) => {
      const simulator = await startTestSimulator({ tee });
      t.after(() => simulator.close());
      const document = await documentOf(simulator);
      assert.deepEqual(Object.keys(document), [
        'version',
        'raw_attestation_doc',
        'attestation_type',
        'manifests',
        'policies',
        'root_ca',
        'mesh_ca',
      ]);
      assert.deepEqual(document['attestation_type'], type);
      assert.deepEqual(document['manifests'], [Buffer.from(simulator.manifest).toString('base64')]);
      simulator.rotateMesh();
      assert.notEqual((await documentOf(simulator))['mesh_ca'], document['mesh_ca']);
    });
  }
});

/**
 * What the verifier refuses TDX evidence for; undefined where the fault is one of SEV-SNP alone. The rows of
 * SEV-SNP are in test/commands/verify-live.test.ts, the fetches for its two faults of collateral in
 * test/session/simulated-deployment.test.ts.
 */
const DECIDING_CHECK: Partial<Record<FaultName, string | undefined>> = {
  'evidence-stale-nonce': 'tdx.policy.report_data',
  'evidence-debug': 'tdx.policy.td_attributes',
  'evidence-signature': 'tdx.quote.signature',
  'evidence-mesh-ca': 'tdx.policy.report_data',
  'evidence-low-tcb': 'tdx.tcb.module_status',
  'evidence-chip': 'tdx.policy.piid',
  'evidence-history': 'manifest.count',
  'evidence-revoked': 'tdx.revocation.platform_ca',
  'evidence-no-crl': undefined,
  'evidence-no-vcek': undefined,
};

describe('TDX evidence of a simulated deployment', () => {
  const directory = temporaryDirectory('trust-evidence-');
  let simulator: Simulator;
  before(async () => {
    simulator = await startTestSimulator({ tee: 'tdx', directory });
  });
  afterEach(() => simulator.faults.clear());
  after(() => simulator.close());

  for (const [fault, check] of Object.entries(DECIDING_CHECK) as [FaultName, string | undefined][]) {
    it(`is ${check === undefined ? 'accepted' : `refused by ${check}`} under the fault ${fault}`, async () => {
      simulator.faults.parse(fault, true);
      const { port, url } = simulator;
      const flags = [
        ...[`--api-endpoint=localhost:${port}`, '--api-key=k', `--cdn-base-url=${url}`],
        ...[`--amd-kds-url=${url}`, `--intel-pcs-url=${url}`],
        ...[`--unsafe-trust-roots=${join(directory, 'roots')}`, '--accept-custom-roots', '--json'],
      ];
      const verified = await verifyCommand(flags, { env: { SSL_CERT_FILE: join(directory, 'ca.pem') } });
      const { outcome, failure } = verified.json();
      assert.deepEqual(
        [outcome, failure?.id],
        [check === undefined ? 'accepted' : 'rejected', check],
        verified.stdout,
      );
    });
  }

  it('has a deciding check in the table for every fault of evidence', () => {
    const faults = Object.keys(FAULTS).filter((name) => name.startsWith('evidence-'));
    assert.deepEqual(Object.keys(DECIDING_CHECK).sort(), faults.sort());
  });
});
