/**
 * AMD's side of SEV-SNP: root (ARK), intermediate (ASK), endorsement key certificate (VCEK) and revocation
 * list, in the shape of the real ones for Genoa (docs/protocol/attestation.md 7).
 */
import type { KeyObject } from 'node:crypto';
import { type CertificateRequest, currentCrl, type Issuer, type Name } from './certificate.ts';
import { ia5String, integer } from './der.ts';
import {
  authorityKeyId,
  basicConstraints,
  crlDistributionPoint,
  type EncodedExtension,
  keyUsage,
  subjectKeyId,
  vendorExtension,
} from './extensions.ts';

/** Security patch levels of the platform firmware (docs/protocol/attestation.md 6.3); 0..255 each. */
export interface Tcb {
  readonly bootloader: number;
  readonly tee: number;
  readonly snp: number;
  readonly microcode: number;
}

const PRODUCT = 'Genoa';
const CRL_URL = `https://kdsintf.amd.com/vcek/v1/${PRODUCT}/crl`;
/** Dates of the roots. They begin before any clock that a test may set, as the roots of real chips do. */
const ROOT_VALIDITY = {
  notBefore: new Date('2022-01-26T15:34:37Z'),
  notAfter: new Date('2047-01-26T15:34:37Z'),
};
const DAY = 86_400_000;

export const amdName = (commonName: string): Name => [
  ['OU', 'Engineering'],
  ['C', 'US'],
  ['L', 'Santa Clara'],
  ['ST', 'CA'],
  ['O', 'Advanced Micro Devices'],
  ['CN', commonName],
];

type AmdKeys = Readonly<Record<'ark' | 'ask' | 'vcek', KeyObject>>;

export const arkIssuer = ({ ark: key }: AmdKeys): Issuer => ({ name: amdName(`ARK-${PRODUCT}`), key });
export const askIssuer = ({ ask: key }: AmdKeys): Issuer => ({ name: amdName(`SEV-${PRODUCT}`), key });

/** The self-signed root. */
export const arkRequest = (keys: AmdKeys): CertificateRequest => ({
  issuer: arkIssuer(keys),
  subject: arkIssuer(keys).name,
  key: keys.ark,
  serial: 0x020000n,
  ...ROOT_VALIDITY,
  extensions: [
    ...[keyUsage('keyCertSign', 'cRLSign'), subjectKeyId(keys.ark), basicConstraints(true)],
    crlDistributionPoint(CRL_URL),
  ],
});

export const ASK_SERIAL = 0x020002n;

/** The intermediate that signs the chips' certificates. */
export const askRequest = (keys: AmdKeys): CertificateRequest => ({
  issuer: arkIssuer(keys),
  subject: askIssuer(keys).name,
  key: keys.ask,
  serial: ASK_SERIAL,
  ...ROOT_VALIDITY,
  extensions: [
    ...[subjectKeyId(keys.ask), authorityKeyId(keys.ark), basicConstraints(true, 0)],
    ...[keyUsage('keyCertSign'), crlDistributionPoint(CRL_URL)],
  ],
});

/** The certificate of one chip at one TCB. `chipId` has 64 bytes. Serial number 0, as AMD issues them. */
export function vcekRequest(keys: AmdKeys, chipId: Uint8Array, tcb: Tcb): CertificateRequest {
  return {
    issuer: askIssuer(keys),
    subject: amdName('SEV-VCEK'),
    key: keys.vcek,
    serial: 0n,
    notBefore: new Date(Date.now() - 30 * DAY),
    notAfter: new Date(Date.now() + 7 * 365 * DAY),
    extensions: amdExtensions(vcekParts(chipId, tcb)),
  };
}

/** AMD's extensions of a chip's certificate as (suffix, DER value) pairs. */
export const vcekParts = (chipId: Uint8Array, tcb: Tcb): readonly (readonly [string, Uint8Array])[] => [
  ['1', integer(0)], // structVersion
  ['2', ia5String(PRODUCT)],
  ['3.1', integer(tcb.bootloader)],
  ['3.2', integer(tcb.tee)],
  ...['3.4', '3.5', '3.6', '3.7'].map((reserved) => [reserved, integer(0)] as const),
  ['3.3', integer(tcb.snp)],
  ['3.8', integer(tcb.microcode)],
  ['4', chipId], // hwid: raw bytes, no DER header
];

export const amdExtensions = (parts: readonly (readonly [string, Uint8Array])[]): EncodedExtension[] =>
  parts.map(([suffix, value]) => vendorExtension(`1.3.6.1.4.1.3704.1.${suffix}`, value));

/** The ARK's revocation list, DER: current, and empty unless the ASK is revoked. */
export const issueAmdCrl = (keys: AmdKeys, revokeAsk: boolean): Uint8Array =>
  currentCrl(arkIssuer(keys), 4, 180, revokeAsk ? [ASK_SERIAL] : []);
