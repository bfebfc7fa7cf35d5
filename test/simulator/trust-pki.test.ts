import assert from 'node:assert/strict';
import { constants, createHash, verify, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { before, describe, it } from 'node:test';
import { parseManifest } from '../../lib/attestation/manifest.ts';
import { decodeSnpAttestation } from '../../lib/attestation/snp/report.ts';
import { parseCertificate } from '../../lib/attestation/x509/certificate.ts';
import { parseCrl } from '../../lib/attestation/x509/crl.ts';
import { children, parseDer } from '../../lib/crypto/der.ts';
import { snpEvidence } from '../../simulator/evidence/snp.ts';
import { createFaults } from '../../simulator/faults.ts';
import type { Hardware } from '../../simulator/hardware.ts';
import { buildManifest } from '../../simulator/manifest.ts';
import { issueAmdCrl, issueVcek } from '../../simulator/pki/amd.ts';
import { element, integer, oid, time } from '../../simulator/pki/der.ts';
import { issuePck, issuePckCrl, issuePlatformCa, issueTcbSigning } from '../../simulator/pki/intel.ts';
import { createMesh, issueWorkload } from '../../simulator/pki/mesh.ts';
import { sgxExtension } from '../../simulator/pki/sgx-extension.ts';
import { issueServerCertificate } from '../../simulator/pki/tls.ts';
import { sharedHardware } from '../support/remote/simulator.ts';

const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const TCB = { bootloader: 12, tee: 0, snp: 28, microcode: 200 };
describe('DER encoding', () => {
  const CASES: readonly (readonly [string, Uint8Array, string])[] = [
    ['a short length', element(0x04, new Uint8Array(3)), '0403000000'],
    ['the longest one-byte length', element(0x04, new Uint8Array(127)).subarray(0, 3), '047f00'],
    ['the first two-byte length', element(0x04, new Uint8Array(128)).subarray(0, 4), '04818000'],
    ['the first three-byte length', element(0x04, new Uint8Array(256)).subarray(0, 5), '0482010000'],
    ['zero', integer(0), '020100'],
    ['127', integer(127), '02017f'],
    ['128, with its sign bit kept clear', integer(128), '02020080'],
    ['65536', integer(65536n), '0203010000'],
    ['an object identifier', oid('1.2.840.113549.1.1.10'), '06092a864886f70d01010a'],
    ['an object identifier with a long arc', oid('1.3.9901.3.1'), '06052bcd2d0301'],
    ['a time before 2050', time(new Date('2049-12-31T23:59:59.9Z')), '170d3439313233313233353935395a'],
    ['a time from 2050 on', time(new Date('2050-01-01T00:00:00Z')), '180f32303530303130313030303030305a'],
  ];
  for (const [name, bytes, expected] of CASES) {
    it(`writes ${name}`, () => assert.equal(hexOf(bytes), expected));
  }
});

describe('the simulated vendors', () => {
  let hardware: Hardware;
  before(async () => {
    hardware = await sharedHardware();
  });

  it('chain an AMD chip to its root with RSASSA-PSS, SHA-384 and salt 48', () => {
    const { keys, ids, roots } = hardware;
    const vcek = issueVcek(keys, ids.chipId, TCB);
    for (const [der, issuer] of [
      [vcek, roots.ask],
      [roots.ask, roots.ark],
      [roots.ark, roots.ark],
    ] as const) {
      const [tbs, , signature] = children(parseDer(der));
      const key = new X509Certificate(issuer).publicKey;
      assert.equal(key.asymmetricKeyDetails?.modulusLength, 4096);
      const options = { key, padding: constants.RSA_PKCS1_PSS_PADDING };
      const bits = signature?.content.subarray(1) ?? new Uint8Array();
      assert.ok(verify('sha384', tbs?.full ?? new Uint8Array(), { ...options, saltLength: 48 }, bits));
      assert.ok(new X509Certificate(der).checkIssued(new X509Certificate(issuer)));
      assert.ok(new X509Certificate(der).verify(key));
    }
  });

  it('describe chip and TCB in the VCEK as AMD does', () => {
    const { keys, ids } = hardware;
    const vcek = parseCertificate(issueVcek(keys, ids.chipId, TCB));
    assert.equal(vcek.serial, '00');
    assert.equal(vcek.publicKey.curve, 'P-384');
    const byOid = Object.fromEntries(vcek.extensions.map(({ oid: id, value }) => [id, hexOf(value)]));
    const amd = (suffix: string): string | undefined => byOid[`1.3.6.1.4.1.3704.1.${suffix}`];
    assert.equal(Object.keys(byOid).length, 11);
    assert.equal(amd('2'), '160547656e6f61');
    assert.deepEqual(['3.1', '3.2', '3.3', '3.8'].map(amd), ['02010c', '020100', '02011c', '020200c8']);
    assert.equal(amd('4'), hexOf(ids.chipId));
  });

  it('revoke an intermediate only when told to', () => {
    const { keys, roots } = hardware;
    const { serial } = parseCertificate(roots.ask);
    assert.equal(parseCrl(issueAmdCrl(keys, false)).revoked.has(serial), false);
    assert.equal(parseCrl(issueAmdCrl(keys, true)).revoked.has(serial), true);
  });

  it('chain an Intel platform and the TCB signer to their root', () => {
    const { keys, ids, roots } = hardware;
    const platform = issuePlatformCa(keys);
    const pck = issuePck(keys, sgxExtension(ids));
    for (const [der, issuer] of [
      [pck, platform],
      [platform, roots.intelRoot],
      [issueTcbSigning(keys), roots.intelRoot],
      [roots.intelRoot, roots.intelRoot],
    ] as const) {
      const certificate = new X509Certificate(der);
      assert.ok(certificate.checkIssued(new X509Certificate(issuer)), certificate.subject);
      assert.ok(certificate.verify(new X509Certificate(issuer).publicKey), certificate.subject);
    }
    assert.equal(parseCertificate(pck).extensions.length, 6);
    assert.equal(parseCrl(issuePckCrl(keys)).revoked.size, 0);
  });

  it('issue a TLS certificate for every name the port is reached under', () => {
    const { keys, roots } = hardware;
    const { cert } = issueServerCertificate(keys, ['localhost', '127.0.0.1', '::1', 'cdn.example']);
    const certificate = new X509Certificate(cert);
    assert.equal(certificate.checkHost('localhost'), 'localhost');
    assert.equal(certificate.checkHost('cdn.example'), 'cdn.example');
    assert.equal(certificate.checkIP('127.0.0.1'), '127.0.0.1');
    assert.equal(certificate.checkIP('::1'), '::1');
    assert.equal(certificate.checkHost('other.example'), undefined);
    assert.ok(certificate.verify(new X509Certificate(roots.tlsCa).publicKey));
  });
});

describe('the simulated mesh', () => {
  it('issues certificates in the profile of the coordinator', () => {
    const now = Date.parse('2026-12-01T00:00:00Z');
    const mesh = createMesh(now);
    const ca = parseCertificate(new X509Certificate(mesh.meshCaPem).raw);
    const { certificate } = issueWorkload(
      mesh,
      { sans: ['root', '*', '10.0.0.1'], workloadSecretId: 'id' },
      now,
    );
    const leaf = parseCertificate(certificate);
    assert.deepEqual(ca.basicConstraints?.ca, true);
    assert.deepEqual([...(ca.keyUsage ?? [])], ['digitalSignature', 'keyCertSign']);
    assert.equal(ca.publicKey.curve, 'P-384');
    assert.equal(leaf.publicKey.curve, 'P-256');
    assert.deepEqual([...(leaf.keyUsage ?? [])], ['digitalSignature']);
    assert.deepEqual(leaf.subjectAltNames?.dns, ['root', '*']);
    assert.deepEqual(leaf.subjectAltNames?.ip.map(hexOf), ['0a000001']);
    assert.equal(leaf.notBefore.toISOString(), '2026-11-30T23:00:00.000Z');
    assert.equal(new X509Certificate(mesh.rootCaPem).subject, 'CN=system:coordinator:root');
    assert.equal(new X509Certificate(mesh.meshCaPem).subject, 'CN=system:coordinator:intermediate');
  });
});

interface ManifestJson {
  readonly Policies: Readonly<Record<string, { readonly SANs: string[]; readonly Role?: string }>>;
  readonly ReferenceValues: Readonly<Record<'snp' | 'tdx', Record<string, unknown>[]>>;
  readonly SeedshareOwnerPubKeys: string[];
}

const LIVE = new URL('../vectors/attestation/contrast/privatemode_manifest_v1.58.0.json', import.meta.url);
const jsonOf = (bytes: Uint8Array): ManifestJson => JSON.parse(Buffer.from(bytes).toString('utf8'));
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
