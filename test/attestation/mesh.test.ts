/** Who signed the secret exchange (docs/protocol/attestation.md 12, 13.1, 19.11). */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import type { Check } from '../../lib/attestation/check.ts';
import {
  MESH_ROWS,
  SECRET_ROWS,
  type SecretResponseInput,
  verifySecretResponse,
} from '../../lib/attestation/mesh.ts';
import { type CertificateRequest, issueCertificate, toPem } from '../../simulator/pki/certificate.ts';
import { octetString, utf8String } from '../../simulator/pki/der.ts';
import {
  basicConstraints,
  type EncodedExtension,
  extendedKeyUsage,
  keyUsage,
  vendorExtension,
} from '../../simulator/pki/extensions.ts';
import {
  SYNTHETIC_SETS,
  secretInput,
  syntheticCases,
  vectorBytes,
} from '../support/evidence/attestation-vectors.ts';

const failures = (checks: readonly Check[]): string[] =>
  checks.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id);
const GOOD = secretInput('synthetic_v158');
/** The checks of a good response with these changes. */
const judged = (changes: Partial<SecretResponseInput>) => verifySecretResponse({ ...GOOD, ...changes });
const failing = async (changes: Partial<SecretResponseInput>) => failures(await judged(changes));

describe('secret responses of the vectors', () => {
  it('pass in both synthetic sets, with one check per row of the tables', async () => {
    for (const set of SYNTHETIC_SETS) {
      const checks = await verifySecretResponse(secretInput(set));
      assert.deepEqual(failures(checks), []);
      assert.deepEqual(
        checks.map(({ id }) => id),
        [...MESH_ROWS, ...SECRET_ROWS].map(({ id }) => id),
      );
    }
  });

  it('are refused if they are bad, unless only HPKE can tell', async () => {
    const passing: string[] = [];
    for (const { file, kind } of syntheticCases('synthetic')) {
      if (kind !== 'secret_response') continue;
      if (failures(await verifySecretResponse(secretInput('synthetic', `negative/${file}`))).length === 0)
        passing.push(file);
    }
    assert.deepEqual(passing.sort(), ['secret_enc_lowOrder.json', 'secret_enc_tampered_resigned.json']);
  });

  const manifest = vectorBytes('contrast/privatemode_manifest_v1.58.0.json');
  const swapped: Readonly<Record<string, Readonly<Record<string, Partial<SecretResponseInput>>>>> = {
    'secret.signature': {
      'another public key': { publicKey: GOOD.publicKey.map((byte, at) => (at === 0 ? byte ^ 1 : byte)) },
      'another encapsulated key': { encapsulatedKey: GOOD.publicKey.subarray(0, 1120) },
      'no signature': { signature: new Uint8Array(0) },
    },
    'secret.form, secret.signature': {
      'a public key of 1215 bytes': { publicKey: GOOD.publicKey.subarray(1) },
      'no encapsulated key': { encapsulatedKey: new Uint8Array(0) },
    },
    'mesh.certificate.form': { 'an unreadable certificate': { meshCert: new Uint8Array(9) } },
    'mesh.certificate.signature': {
      'another mesh CA': { meshCaPem: secretInput('synthetic').meshCaPem },
      'an unreadable mesh CA': { meshCaPem: 'no PEM' },
    },
    'mesh.certificate.validity': { 'a later time': { now: new Date('2030-01-01T00:00:00Z') } },
    'mesh.identity.workload_secret_id': {
      'the manifest of another deployment': { manifest },
      'an unreadable manifest': { manifest: new Uint8Array(3) },
    },
  };
  for (const [ids, each] of Object.entries(swapped)) {
    for (const [what, changes] of Object.entries(each)) {
      it(`are refused with ${what}`, async () => assert.equal((await failing(changes)).join(', '), ids));
    }
  }
});

describe('mesh certificates', () => {
  const p256 = () => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const p384 = () => generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
  const [ca, leaf] = [p384(), p256()];
  const CA_NAME = [['CN', 'mesh']] as const;
  const SERVICE = 'apps/v1/StatefulSet/continuum-test/secret-service';
  const issuer = { name: CA_NAME, key: ca };
  const validity = {
    notBefore: new Date('2026-11-30T00:00:00Z'),
    notAfter: new Date('2027-11-30T00:00:00Z'),
  };
  const caWith = (changes: Partial<CertificateRequest>): string => {
    const extensions = [basicConstraints(true), keyUsage('keyCertSign')];
    return toPem(
      issueCertificate({ issuer, subject: CA_NAME, key: ca, ...validity, extensions, ...changes }),
    );
  };
  const identity = (id: string): EncodedExtension =>
    vendorExtension('1.3.9901.3.1', octetString(Buffer.from(id)));
  const USES = [keyUsage('digitalSignature'), extendedKeyUsage('clientAuth', 'serverAuth')];
  const certificate = (changes: Partial<CertificateRequest>): Uint8Array =>
    issueCertificate({
      ...{ issuer, subject: [['CN', 'root']], key: leaf, ...validity },
      extensions: [...USES, identity(SERVICE)],
      ...changes,
    });
  const ofMesh = (checks: readonly Check[]) => checks.filter(({ id }) => id.startsWith('mesh.'));
  const judge = async (changes: Partial<CertificateRequest>, meshCaPem = caWith({})): Promise<string[]> =>
    failures(ofMesh(await judged({ meshCaPem, meshCert: certificate(changes) })));

  it('are accepted as the coordinator issues them, with a P-384 key, and with no purpose or anyExtendedKeyUsage', async () => {
    const any = vendorExtension('2.5.29.37', Buffer.from('30060604551d2500', 'hex'));
    for (const changes of [
      {},
      { key: p384() },
      { extensions: [identity(SERVICE)] },
      { extensions: [any, identity(SERVICE)] },
    ])
      assert.deepEqual(await judge(changes), []);
  });

  const unknown = { ...keyUsage('digitalSignature'), oid: '1.2.3' };
  const serving = (...extensions: readonly EncodedExtension[]) => ({
    extensions: [...extensions, identity(SERVICE)],
  });
  const refused: Readonly<Record<string, Readonly<Record<string, Partial<CertificateRequest>>>>> = {
    'mesh.identity.common_name': {
      'another common name': { subject: [['CN', 'continuum-etcd-client']] },
      'two common names': { subject: Array(2).fill(['CN', 'root']) },
    },
    'mesh.certificate.signature': {
      'another issuer name': { issuer: { name: [['CN', 'x']], key: ca } },
      'another issuer key': { issuer: { name: CA_NAME, key: p384() } },
    },
    'mesh.certificate.key': {
      'a key on another curve': { key: generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).privateKey },
    },
    'mesh.identity.workload_secret_id': {
      'no WorkloadSecretID': { extensions: USES },
      'the WorkloadSecretID of another workload': {
        extensions: [identity('apps/v1/Deployment/continuum-test/workload-test')],
      },
      'a longer WorkloadSecretID': { extensions: [identity(`${SERVICE}2`)] },
      'a WorkloadSecretID of another type': {
        extensions: [vendorExtension('1.3.9901.3.1', utf8String(SERVICE))],
      },
    },
    'mesh.certificate.usage': {
      'a client purpose only': serving(extendedKeyUsage('clientAuth')),
      'a key that may not sign': serving(keyUsage('keyCertSign')),
      'an unknown critical extension': serving(unknown),
    },
  };
  for (const [id, cases] of Object.entries(refused)) {
    for (const [what, changes] of Object.entries(cases)) {
      it(`are refused with ${what}`, async () => assert.deepEqual(await judge(changes), [id]));
    }
  }

  it('are refused under a mesh CA that is no CA, has expired or is given twice', async () => {
    const ended = caWith({ notAfter: new Date('2026-11-30T12:00:00Z') });
    assert.deepEqual(await judge({}, caWith({ extensions: [] })), ['mesh.certificate.signature']);
    assert.deepEqual(await judge({}, ended), ['mesh.certificate.validity']);
    assert.deepEqual(await judge({}, caWith({}).repeat(2)), ['mesh.certificate.signature']);
  });
});
