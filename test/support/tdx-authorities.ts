/**
 * Authorities like Intel's for one platform: root, platform CA, PCK certificate and TCB signing certificate, each of
 * which can be changed before it is signed. Keys are made once per process.
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { SGX_EXTENSION_OID } from '../../lib/attestation/tdx/sgx-extension.ts';
import { type CertificateRequest, issueCertificate, type Name } from '../../simulator/pki/certificate.ts';
import { boolean, enumerated, integer, octetString, oid, sequence } from '../../simulator/pki/der.ts';
import {
  authorityKeyId,
  basicConstraints,
  crlDistributionPoint,
  keyUsage,
  subjectKeyId,
  vendorExtension,
} from '../../simulator/pki/extensions.ts';

export const ROOT_CRL_URL = 'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der';
const VALID = { notBefore: new Date('2026-01-01T00:00:00Z'), notAfter: new Date('2036-01-01T00:00:00Z') };

export const p256 = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
export const KEYS = {
  root: p256(),
  platformCa: p256(),
  pck: p256(),
  /** Intel has one signer for both; two here, so that no check of one passes for the other's. */
  tcbSigning: p256(),
  qeSigning: p256(),
  attestation: p256(),
};

export const intelName = (commonName: string): Name => [
  ['CN', commonName],
  ['O', 'Intel Corporation'],
  ['L', 'Santa Clara'],
  ['ST', 'CA'],
  ['C', 'US'],
];
export const ISSUERS = {
  root: { name: intelName('Intel SGX Root CA'), key: KEYS.root },
  platformCa: { name: intelName('Intel SGX PCK Platform CA'), key: KEYS.platformCa },
} as const;

/** The parts of the Intel extension as (suffix, DER value) pairs; `2` and `7` are lists of such pairs. */
export interface SgxParts {
  readonly parts: readonly (readonly [string, Uint8Array])[];
  readonly tcb: readonly (readonly [string, Uint8Array])[];
  readonly configuration: readonly (readonly [string, Uint8Array])[];
}

export const COMPONENT_SVNS = [3, 3, 2, 2, 4, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0];
export const SGX_PARTS: SgxParts = {
  parts: [
    ['1', octetString(new Uint8Array(16))],
    ['3', octetString(Uint8Array.of(0, 0))],
    ['4', octetString(Buffer.from('a0b1c2d3e4f5', 'hex'))],
    ['5', enumerated(2)],
    ['6', octetString(new Uint8Array(16).fill(0x11))],
  ],
  tcb: [
    ...COMPONENT_SVNS.map((svn, i) => [`2.${i + 1}`, integer(svn)] as const),
    ['2.17', integer(13)],
    ['2.18', octetString(new Uint8Array(16))],
  ],
  configuration: [
    ['7.1', boolean(false)],
    ['7.2', boolean(true)],
    ['7.3', boolean(false)],
  ],
};

const pairs = (list: readonly (readonly [string, Uint8Array])[]): Uint8Array[] =>
  list.map(([suffix, value]) => sequence(oid(`${SGX_EXTENSION_OID}.${suffix}`), value));

export function encodeSgx({ parts, tcb, configuration }: SgxParts): Uint8Array {
  return sequence(
    ...pairs([...parts, ['2', sequence(...pairs(tcb))], ['7', sequence(...pairs(configuration))]]),
  );
}

export type Change<T> = (original: T) => T;
export const same = <T>(value: T): T => value;

export interface CertificateChanges {
  readonly root?: Change<CertificateRequest>;
  readonly platformCa?: Change<CertificateRequest>;
  readonly pck?: Change<CertificateRequest>;
  /** Signs TCB info. */
  readonly tcbSigning?: Change<CertificateRequest>;
  /** Signs the QE identity. */
  readonly qeSigning?: Change<CertificateRequest>;
  readonly sgx?: Change<SgxParts>;
}

/** The DER of the five certificates. */
export function certificates(changes: CertificateChanges) {
  const root = issueCertificate(
    (changes.root ?? same)({
      issuer: ISSUERS.root,
      subject: ISSUERS.root.name,
      key: KEYS.root,
      serial: 0x11n,
      ...VALID,
      extensions: [
        authorityKeyId(KEYS.root),
        crlDistributionPoint(ROOT_CRL_URL),
        subjectKeyId(KEYS.root),
        keyUsage('keyCertSign', 'cRLSign'),
        basicConstraints(true, 1),
      ],
    }),
  );
  const platformCa = issueCertificate(
    (changes.platformCa ?? same)({
      issuer: ISSUERS.root,
      subject: ISSUERS.platformCa.name,
      key: KEYS.platformCa,
      serial: 0x12n,
      ...VALID,
      extensions: [
        authorityKeyId(KEYS.root),
        crlDistributionPoint(ROOT_CRL_URL),
        subjectKeyId(KEYS.platformCa),
        keyUsage('keyCertSign', 'cRLSign'),
        basicConstraints(true, 0),
      ],
    }),
  );
  const pck = issueCertificate(
    (changes.pck ?? same)({
      issuer: ISSUERS.platformCa,
      subject: intelName('Intel SGX PCK Certificate'),
      key: KEYS.pck,
      serial: 0x4242n,
      ...VALID,
      extensions: [
        authorityKeyId(KEYS.platformCa),
        crlDistributionPoint('https://example.test/pckcrl'),
        subjectKeyId(KEYS.pck),
        keyUsage('digitalSignature', 'nonRepudiation'),
        basicConstraints(false),
        vendorExtension(SGX_EXTENSION_OID, encodeSgx((changes.sgx ?? same)(SGX_PARTS))),
      ],
    }),
  );
  const signing = (key: KeyObject, serial: bigint, change: Change<CertificateRequest> = same): Uint8Array =>
    issueCertificate(
      change({
        issuer: ISSUERS.root,
        subject: intelName('Intel SGX TCB Signing'),
        key,
        serial,
        ...VALID,
        extensions: [
          authorityKeyId(KEYS.root),
          subjectKeyId(key),
          keyUsage('digitalSignature', 'nonRepudiation'),
          basicConstraints(false),
        ],
      }),
    );
  const tcbSigning = signing(KEYS.tcbSigning, 0x13n, changes.tcbSigning);
  const qeSigning = signing(KEYS.qeSigning, 0x14n, changes.qeSigning);
  return { root, platformCa, pck, tcbSigning, qeSigning };
}
