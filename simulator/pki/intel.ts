/**
 * Intel's side of TDX: root, PCK platform CA, TCB signing certificate, the platform's PCK certificate and the
 * two revocation lists (docs/protocol/attestation.md 10).
 */
import type { KeyObject } from 'node:crypto';
import {
  type CertificateRequest,
  type Issuer,
  issueCertificate,
  issueCrl,
  type Name,
} from './certificate.ts';
import {
  authorityKeyId,
  basicConstraints,
  crlDistributionPoint,
  type EncodedExtension,
  keyUsage,
  subjectKeyId,
} from './extensions.ts';

export const ROOT_CRL_URL = 'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der';
const PCK_CRL_URL =
  'https://api.trustedservices.intel.com/sgx/certification/v4/pckcrl?ca=platform&encoding=der';
const DAY = 86_400_000;

export const intelName = (commonName: string): Name => [
  ['CN', commonName],
  ['O', 'Intel Corporation'],
  ['L', 'Santa Clara'],
  ['ST', 'CA'],
  ['C', 'US'],
];

/** The private keys of these certificates. Each authority holds its own. */
interface IntelKeys {
  readonly intelRoot: KeyObject;
  readonly intelPlatformCa: KeyObject;
  readonly intelTcbSigning: KeyObject;
  readonly pck: KeyObject;
}

export const rootIssuer = ({ intelRoot }: Pick<IntelKeys, 'intelRoot'>): Issuer => ({
  name: intelName('Intel SGX Root CA'),
  key: intelRoot,
});
export const platformIssuer = ({ intelPlatformCa }: Pick<IntelKeys, 'intelPlatformCa'>): Issuer => ({
  name: intelName('Intel SGX PCK Platform CA'),
  key: intelPlatformCa,
});

const validFor = (years: number): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(Date.now() - 30 * DAY),
  notAfter: new Date(Date.now() + years * 365 * DAY),
});

/** The self-signed root. */
export function intelRootRequest(keys: IntelKeys): CertificateRequest {
  const issuer = rootIssuer(keys);
  return {
    issuer,
    subject: issuer.name,
    key: keys.intelRoot,
    notBefore: new Date('2018-05-21T10:45:10Z'),
    notAfter: new Date('2049-12-31T23:59:59Z'),
    extensions: [
      authorityKeyId(keys.intelRoot),
      crlDistributionPoint(ROOT_CRL_URL),
      subjectKeyId(keys.intelRoot),
      keyUsage('keyCertSign', 'cRLSign'),
      basicConstraints(true, 1),
    ],
  };
}

export const issueIntelRoot = (keys: IntelKeys): Uint8Array => issueCertificate(intelRootRequest(keys));

/** Fixed, so that a revocation list can name it. */
const PLATFORM_CA_SERIAL = 0x4a6f2c1d5e8b9370n;

/** The intermediate that signs PCK certificates. */
export function platformCaRequest(keys: IntelKeys): CertificateRequest {
  return {
    issuer: rootIssuer(keys),
    subject: platformIssuer(keys).name,
    key: keys.intelPlatformCa,
    serial: PLATFORM_CA_SERIAL,
    ...validFor(15),
    extensions: [
      authorityKeyId(keys.intelRoot),
      crlDistributionPoint(ROOT_CRL_URL),
      subjectKeyId(keys.intelPlatformCa),
      keyUsage('keyCertSign', 'cRLSign'),
      basicConstraints(true, 0),
    ],
  };
}

export const issuePlatformCa = (keys: IntelKeys): Uint8Array => issueCertificate(platformCaRequest(keys));

/** The certificate that signs TCB info and QE identity. */
export function tcbSigningRequest(keys: IntelKeys): CertificateRequest {
  return {
    issuer: rootIssuer(keys),
    subject: intelName('Intel SGX TCB Signing'),
    key: keys.intelTcbSigning,
    ...validFor(7),
    extensions: [
      authorityKeyId(keys.intelRoot),
      crlDistributionPoint(ROOT_CRL_URL),
      subjectKeyId(keys.intelTcbSigning),
      keyUsage('digitalSignature', 'nonRepudiation'),
      basicConstraints(false),
    ],
  };
}

export const issueTcbSigning = (keys: IntelKeys): Uint8Array => issueCertificate(tcbSigningRequest(keys));

/** The platform's own certificate; exactly six extensions, the last of them `sgx`. */
export function pckRequest(keys: IntelKeys, sgx: EncodedExtension): CertificateRequest {
  return {
    issuer: platformIssuer(keys),
    subject: intelName('Intel SGX PCK Certificate'),
    key: keys.pck,
    ...validFor(7),
    extensions: [
      authorityKeyId(keys.intelPlatformCa),
      crlDistributionPoint(PCK_CRL_URL),
      subjectKeyId(keys.pck),
      keyUsage('digitalSignature', 'nonRepudiation'),
      basicConstraints(false),
      sgx,
    ],
  };
}

export const issuePck = (keys: IntelKeys, sgx: EncodedExtension): Uint8Array =>
  issueCertificate(pckRequest(keys, sgx));

const intelCrl = (issuer: Issuer, revoked: readonly bigint[]): Uint8Array =>
  issueCrl({
    issuer,
    number: 1,
    thisUpdate: new Date(Date.now() - DAY),
    nextUpdate: new Date(Date.now() + 30 * DAY),
    revoked: revoked.map((serial) => ({ serial, date: new Date(Date.now() - DAY) })),
  });

/** The root's revocation list (it covers the intermediate and the TCB signing certificate), DER. */
export const issueRootCrl = (keys: IntelKeys, revokePlatformCa: boolean): Uint8Array =>
  intelCrl(rootIssuer(keys), revokePlatformCa ? [PLATFORM_CA_SERIAL] : []);

/** The platform CA's revocation list (it covers the PCK certificate), DER. */
export const issuePckCrl = (keys: IntelKeys): Uint8Array => intelCrl(platformIssuer(keys), []);
