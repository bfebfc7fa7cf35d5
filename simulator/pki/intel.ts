/**
 * Intel's side of TDX: root, PCK platform CA, TCB signing certificate, the platform's PCK certificate and the two
 * revocation lists (docs/protocol/attestation.md 10).
 */
import type { HardwareKeys } from '../hardware.ts';
import { type Issuer, issueCertificate, issueCrl, type Name } from './certificate.ts';
import {
  authorityKeyId,
  basicConstraints,
  crlDistributionPoint,
  type EncodedExtension,
  keyUsage,
  subjectKeyId,
} from './extensions.ts';

const ROOT_CRL_URL = 'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der';
const PCK_CRL_URL =
  'https://api.trustedservices.intel.com/sgx/certification/v4/pckcrl?ca=platform&encoding=der';
const DAY = 86_400_000;

const intelName = (commonName: string): Name => [
  ['CN', commonName],
  ['O', 'Intel Corporation'],
  ['L', 'Santa Clara'],
  ['ST', 'CA'],
  ['C', 'US'],
];

const rootIssuer = ({ intelRoot }: HardwareKeys): Issuer => ({
  name: intelName('Intel SGX Root CA'),
  key: intelRoot,
});
const platformIssuer = ({ intelPlatformCa }: HardwareKeys): Issuer => ({
  name: intelName('Intel SGX PCK Platform CA'),
  key: intelPlatformCa,
});

const validFor = (years: number): { notBefore: Date; notAfter: Date } => ({
  notBefore: new Date(Date.now() - 30 * DAY),
  notAfter: new Date(Date.now() + years * 365 * DAY),
});

/** The self-signed root, DER. */
export function issueIntelRoot(keys: HardwareKeys): Uint8Array {
  const issuer = rootIssuer(keys);
  return issueCertificate({
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
  });
}

/** Fixed, so that a revocation list can name it. */
const PLATFORM_CA_SERIAL = 0x4a6f2c1d5e8b9370n;

/** The intermediate that signs PCK certificates, DER. */
export function issuePlatformCa(keys: HardwareKeys): Uint8Array {
  return issueCertificate({
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
  });
}

/** The certificate that signs TCB info and QE identity, DER. */
export function issueTcbSigning(keys: HardwareKeys): Uint8Array {
  return issueCertificate({
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
  });
}

/** The platform's own certificate, DER; exactly six extensions, the last of them `sgx`. */
export function issuePck(keys: HardwareKeys, sgx: EncodedExtension): Uint8Array {
  return issueCertificate({
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
  });
}

const intelCrl = (issuer: Issuer, revoked: readonly bigint[]): Uint8Array =>
  issueCrl({
    issuer,
    number: 1,
    thisUpdate: new Date(Date.now() - DAY),
    nextUpdate: new Date(Date.now() + 30 * DAY),
    revoked: revoked.map((serial) => ({ serial, date: new Date(Date.now() - DAY) })),
  });

/** The root's revocation list (it covers the intermediate and the TCB signing certificate), DER. */
export const issueRootCrl = (keys: HardwareKeys, revokePlatformCa: boolean): Uint8Array =>
  intelCrl(rootIssuer(keys), revokePlatformCa ? [PLATFORM_CA_SERIAL] : []);

/** The platform CA's revocation list (it covers the PCK certificate), DER. */
export const issuePckCrl = (keys: HardwareKeys): Uint8Array => intelCrl(platformIssuer(keys), []);
