/** Who signed the secret exchange (docs/protocol/attestation.md 12, 13.1, 19.11). */
import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
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
  SYNTHETIC_NOW,
  SYNTHETIC_SETS,
  syntheticCases,
  vectorBytes,
} from '../support/evidence/attestation-vectors.ts';
import { secretInput } from '../support/evidence/mesh.ts';

const failures = (checks: readonly Check[]): string[] =>
  checks.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id);

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

  /** What fails first; undefined where only HPKE can tell, or nothing is wrong with the signature. */
  const FIRST_FAILURE: Readonly<Record<string, string | undefined>> = {
    secret_cert_client_only: 'mesh.certificate.usage',
    secret_cert_expired: 'mesh.certificate.validity',
    secret_cert_other_ca: 'mesh.certificate.signature',
    secret_cert_rsa: 'mesh.certificate.key',
    secret_cert_workload_identity: 'mesh.identity.workload_secret_id',
    secret_enc_lowOrder: undefined,
    secret_enc_tampered_resigned: undefined,
    secret_sig_double_hash: 'secret.signature',
    secret_sig_order_swapped: 'secret.signature',
    secret_sig_other_message: 'secret.signature',
    secret_sig_raw_rs: 'secret.signature',
  };
  const cases = syntheticCases('synthetic').filter(({ kind }) => kind === 'secret_response');

  it('are all listed in this test, with the check that fails first', () => {
    assert.deepEqual(
      cases.map(({ file }) => file.replace('.json', '')).sort(),
      Object.keys(FIRST_FAILURE).sort(),
    );
  });

  for (const { file, reason } of cases) {
    const name = file.replace('.json', '');
    const expected = FIRST_FAILURE[name];
    it(`${expected === undefined ? 'pass every check (HPKE decides)' : `fail ${expected}`} in ${name}: ${reason}`, async () => {
      const failed = failures(await verifySecretResponse(secretInput('synthetic', `negative/${file}`)));
      assert.equal(failed[0], expected);
    });
  }

  it('are refused for another public key, signature, manifest, mesh CA or time', async () => {
    const good = secretInput('synthetic_v158');
    const other = secretInput('synthetic');
    const swapped: readonly [Partial<SecretResponseInput>, string[]][] = [
      [
        { publicKey: Uint8Array.from(good.publicKey, (byte, at) => (at === 0 ? byte ^ 1 : byte)) },
        ['secret.signature'],
      ],
      [{ encapsulatedKey: good.publicKey.subarray(0, 1120) }, ['secret.signature']],
      [{ publicKey: good.publicKey.subarray(1) }, ['secret.form', 'secret.signature']],
      [{ encapsulatedKey: new Uint8Array(0) }, ['secret.form', 'secret.signature']],
      [{ signature: new Uint8Array(0) }, ['secret.signature']],
      [{ meshCaPem: other.meshCaPem }, ['mesh.certificate.signature']],
      [{ now: new Date('2030-01-01T00:00:00Z') }, ['mesh.certificate.validity']],
      [{ now: new Date('2026-01-01T00:00:00Z') }, ['mesh.certificate.validity']],
      [
        { manifest: vectorBytes('contrast/privatemode_manifest_v1.58.0.json') },
        ['mesh.identity.workload_secret_id'],
      ],
      [{ manifest: vectorBytes('contrast/manifest_sdk_test.json') }, ['mesh.identity.workload_secret_id']],
    ];
    for (const [changes, expected] of swapped) {
      assert.deepEqual(failures(await verifySecretResponse({ ...good, ...changes })), expected);
    }
  });

  it('are refused if the certificate is not valid yet, with the local clock as the probable cause', async () => {
    const now = new Date('2026-01-01T00:00:00Z');
    const checks = await verifySecretResponse({ ...secretInput('synthetic_v158'), now });
    const found = checks.find(({ id }) => id === 'mesh.certificate.validity')?.found;
    assert.match(
      found ?? '',
      /not valid yet at 2026-01-01T00:00:00.000Z: the local clock is probably behind$/,
    );
  });

  it('fail a check, without an exception, if the certificate, mesh CA or manifest is unreadable', async () => {
    const good = secretInput('synthetic_v158');
    const noCert = await verifySecretResponse({ ...good, meshCert: new Uint8Array(9) });
    assert.equal(noCert.find(({ outcome }) => outcome === 'fail')?.id, 'mesh.certificate.form');
    assert.equal(noCert.find(({ id }) => id === 'secret.signature')?.outcome, 'not-evaluated');
    const noCa = await verifySecretResponse({ ...good, meshCaPem: 'no PEM' });
    assert.deepEqual(
      noCa.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id),
      ['mesh.certificate.signature'],
    );
    const noManifest = await verifySecretResponse({ ...good, manifest: new Uint8Array(3) });
    assert.equal(noManifest.find(({ outcome }) => outcome === 'fail')?.code, 'manifest_invalid');
  });
});

describe('mesh certificates', () => {
  const ca = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;
  const leaf = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const CA_NAME = [['CN', 'mesh']] as const;
  const SERVICE = 'apps/v1/StatefulSet/continuum-test/secret-service';
  const validity = {
    notBefore: new Date('2026-11-30T00:00:00Z'),
    notAfter: new Date('2027-11-30T00:00:00Z'),
  };
  const meshCaPem = toPem(
    issueCertificate({
      issuer: { name: CA_NAME, key: ca },
      subject: CA_NAME,
      key: ca,
      ...validity,
      extensions: [basicConstraints(true), keyUsage('keyCertSign')],
    }),
  );
  const identity = (id: string): EncodedExtension =>
    vendorExtension('1.3.9901.3.1', octetString(Buffer.from(id)));
  const request: CertificateRequest = {
    issuer: { name: CA_NAME, key: ca },
    subject: [['CN', 'root']],
    key: leaf,
    ...validity,
    extensions: [
      keyUsage('digitalSignature'),
      extendedKeyUsage('clientAuth', 'serverAuth'),
      identity(SERVICE),
    ],
  };
  const judge = async (changes: Partial<CertificateRequest>, pem = meshCaPem): Promise<string[]> =>
    failures(
      (
        await verifySecretResponse({
          ...secretInput('synthetic_v158'),
          meshCaPem: pem,
          meshCert: issueCertificate({ ...request, ...changes }),
        })
      ).filter(({ id }) => id.startsWith('mesh.')),
    );
  const p384: KeyObject = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;

  it('are accepted as the coordinator issues them, with a P-384 key, and with no purpose or anyExtendedKeyUsage', async () => {
    assert.deepEqual(await judge({}), []);
    assert.deepEqual(await judge({ key: p384 }), []);
    assert.deepEqual(await judge({ extensions: [identity(SERVICE)] }), []);
    const any = vendorExtension('2.5.29.37', Buffer.from('30060604551d2500', 'hex'));
    assert.deepEqual(await judge({ extensions: [any, identity(SERVICE)] }), []);
  });

  const cases: readonly (readonly [string, Partial<CertificateRequest>, string[]])[] = [
    ['another common name', { subject: [['CN', 'continuum-etcd-client']] }, ['mesh.identity.common_name']],
    [
      'two common names',
      {
        subject: [
          ['CN', 'root'],
          ['CN', 'root'],
        ],
      },
      ['mesh.identity.common_name'],
    ],
    ['another issuer name', { issuer: { name: [['CN', 'x']], key: ca } }, ['mesh.certificate.signature']],
    ['another issuer key', { issuer: { name: CA_NAME, key: p384 } }, ['mesh.certificate.signature']],
    [
      'a key on another curve',
      { key: generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).privateKey },
      ['mesh.certificate.key'],
    ],
    [
      'a validity that has not begun',
      { notBefore: new Date('2026-12-02T00:00:00Z') },
      ['mesh.certificate.validity'],
    ],
  ];
  const SECRET_ID = 'mesh.identity.workload_secret_id';
  const USAGE = 'mesh.certificate.usage';
  const unknown = { ...keyUsage('digitalSignature'), oid: '1.2.3' };
  const byExtensions: readonly (readonly [what: string, extensions: EncodedExtension[], check: string])[] = [
    ['no WorkloadSecretID', [], SECRET_ID],
    [
      'the WorkloadSecretID of another workload',
      [identity('apps/v1/Deployment/continuum-test/workload-test')],
      SECRET_ID,
    ],
    ['a longer WorkloadSecretID', [identity(`${SERVICE}2`)], SECRET_ID],
    ['a WorkloadSecretID of another type', [vendorExtension('1.3.9901.3.1', utf8String(SERVICE))], SECRET_ID],
    ['a client purpose only', [extendedKeyUsage('clientAuth'), identity(SERVICE)], USAGE],
    ['a key that may not sign', [keyUsage('keyCertSign'), identity(SERVICE)], USAGE],
    ['an unknown critical extension', [unknown, identity(SERVICE)], USAGE],
  ];
  for (const [what, extensions, check] of byExtensions) {
    it(`are refused with ${what}`, async () => assert.deepEqual(await judge({ extensions }), [check]));
  }
  for (const [what, changes, expected] of cases) {
    it(`are refused with ${what}`, async () => assert.deepEqual(await judge(changes), expected));
  }

  it('have their uses and purposes shown by mesh.certificate.usage', async () => {
    const found = async (...extensions: readonly EncodedExtension[]) => {
      const meshCert = issueCertificate({ ...request, extensions: [...extensions, identity(SERVICE)] });
      const checks = await verifySecretResponse({ ...secretInput('synthetic_v158'), meshCaPem, meshCert });
      return checks.find(({ id }) => id === 'mesh.certificate.usage')?.found;
    };
    assert.equal(await found(), 'any use,any purpose');
    assert.equal(await found(keyUsage()), 'no use,any purpose');
    assert.equal(
      await found(keyUsage('cRLSign'), extendedKeyUsage('clientAuth')),
      'cRLSign,1.3.6.1.5.5.7.3.2',
    );
  });

  it('are refused under a mesh CA that is no CA, has expired or is given twice', async () => {
    const caWith = (changes: Partial<CertificateRequest>): string =>
      toPem(
        issueCertificate({
          issuer: { name: CA_NAME, key: ca },
          subject: CA_NAME,
          key: ca,
          ...validity,
          extensions: [basicConstraints(true)],
          ...changes,
        }),
      );
    assert.deepEqual(await judge({}, caWith({})), []);
    assert.deepEqual(await judge({}, caWith({ extensions: [] })), ['mesh.certificate.signature']);
    const ended = caWith({ notAfter: new Date('2026-11-30T12:00:00Z') });
    assert.deepEqual(await judge({}, ended), ['mesh.certificate.validity']);
    assert.deepEqual((await judge({}, meshCaPem + meshCaPem))[0], 'mesh.certificate.signature');
  });

  it('are refused if any of their bytes is changed', async () => {
    const good = secretInput('synthetic_v158');
    const { meshCert } = good;
    await fc.assert(
      fc.asyncProperty(fc.nat(meshCert.length - 1), fc.integer({ min: 1, max: 255 }), async (at, mask) => {
        const changed = Uint8Array.from(meshCert);
        changed[at] = (changed[at] as number) ^ mask;
        assert.notDeepEqual(
          failures(await verifySecretResponse({ ...good, meshCert: changed })),
          [],
          `byte ${at}`,
        );
      }),
      { seed: 20261201, numRuns: 400 },
    );
  });

  it('verify a signature over public key and encapsulated key, in this order, hashed once', async () => {
    const meshCert = issueCertificate(request);
    const publicKey = new Uint8Array(1216).fill(1);
    const encapsulatedKey = new Uint8Array(1120).fill(2);
    const signed = async (data: Uint8Array): Promise<string[]> =>
      failures(
        await verifySecretResponse({
          ...{ meshCaPem, meshCert, publicKey, encapsulatedKey },
          manifest: vectorBytes('synthetic_v158/manifest.json'),
          now: SYNTHETIC_NOW,
          signature: sign('sha256', data, leaf),
        }),
      );
    assert.deepEqual(await signed(Buffer.concat([publicKey, encapsulatedKey])), []);
    assert.deepEqual(await signed(Buffer.concat([encapsulatedKey, publicKey])), ['secret.signature']);
  });
});
