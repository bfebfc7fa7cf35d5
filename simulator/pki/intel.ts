/**
 * Intel's side of TDX: root, PCK platform CA, TCB signing certificate, the platform's PCK certificate and the
 * two revocation lists (docs/protocol/attestation.md 10).
 */
import type { KeyObject } from 'node:crypto';
import { SGX_EXTENSION_OID } from '../../lib/attestation/tdx/chain.ts';
import { TDX_PLATFORM } from '../reference-values.ts';
import { type CertificateRequest, currentCrl, type Issuer, type Name } from './certificate.ts';
import { boolean, enumerated, integer, octetString, oid, sequence } from './der.ts';
import {
  authorityKeyId,
  basicConstraints,
  crlDistributionPoint,
  type EncodedExtension,
  keyUsage,
  subjectKeyId,
  vendorExtension,
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
type IntelKeys = Readonly<Record<'intelRoot' | 'intelPlatformCa' | 'intelTcbSigning' | 'pck', KeyObject>>;

const ROOT = 'Intel SGX Root CA';
const PLATFORM_CA = 'Intel SGX PCK Platform CA';
const PLATFORM_NAME = intelName(PLATFORM_CA);

export const rootIssuer = ({ intelRoot: key }: IntelKeys): Issuer => ({ name: intelName(ROOT), key });
export const platformIssuer = ({ intelPlatformCa: key }: IntelKeys): Issuer => ({ name: PLATFORM_NAME, key });

/** An authority's extensions come before those of the kind of certificate, as in Intel's own. */
function request(
  issuer: Issuer,
  commonName: string,
  key: KeyObject,
  years: number,
  extensions: readonly EncodedExtension[],
): CertificateRequest {
  const crl = issuer.name === PLATFORM_NAME ? PCK_CRL_URL : ROOT_CRL_URL;
  return {
    issuer,
    subject: intelName(commonName),
    key,
    notBefore: new Date(Date.now() - 30 * DAY),
    notAfter: new Date(Date.now() + years * 365 * DAY),
    extensions: [authorityKeyId(issuer.key), crlDistributionPoint(crl), subjectKeyId(key), ...extensions],
  };
}

const ofAuthority = (pathLength: number): EncodedExtension[] => [
  keyUsage('keyCertSign', 'cRLSign'),
  basicConstraints(true, pathLength),
];
const OF_SIGNER = [keyUsage('digitalSignature', 'nonRepudiation'), basicConstraints(false)];

/** The self-signed root. */
export const intelRootRequest = (keys: IntelKeys): CertificateRequest => ({
  ...request(rootIssuer(keys), ROOT, keys.intelRoot, 0, ofAuthority(1)),
  notBefore: new Date('2018-05-21T10:45:10Z'),
  notAfter: new Date('2049-12-31T23:59:59Z'),
});

/** Fixed, so that a revocation list can name it. */
const PLATFORM_CA_SERIAL = 0x4a6f2c1d5e8b9370n;

/** The intermediate that signs PCK certificates. */
export const platformCaRequest = (keys: IntelKeys): CertificateRequest => ({
  ...request(rootIssuer(keys), PLATFORM_CA, keys.intelPlatformCa, 15, ofAuthority(0)),
  serial: PLATFORM_CA_SERIAL,
});

/** The certificate that signs TCB info and QE identity. */
export const tcbSigningRequest = (keys: IntelKeys): CertificateRequest =>
  request(rootIssuer(keys), 'Intel SGX TCB Signing', keys.intelTcbSigning, 7, OF_SIGNER);

/** The platform's own certificate; exactly six extensions, the last of them `sgx`. */
export const pckRequest = (keys: IntelKeys, sgx: EncodedExtension): CertificateRequest =>
  request(platformIssuer(keys), 'Intel SGX PCK Certificate', keys.pck, 7, [...OF_SIGNER, sgx]);

/** The platform CA's revocation list (it covers the PCK certificate), DER. */
export const pckCrl = (keys: IntelKeys): Uint8Array => currentCrl(platformIssuer(keys), 1, 30, []);

/** The root's revocation list, which covers the intermediate and the TCB signing certificate. */
export const rootCrl = (keys: IntelKeys, isPlatformCaRevoked: boolean): Uint8Array =>
  currentCrl(rootIssuer(keys), 1, 30, isPlatformCaRevoked ? [PLATFORM_CA_SERIAL] : []);

type Pair = readonly [suffix: string, value: Uint8Array];

/** Intel's extension as (suffix, DER value) pairs; `tcb` and `configuration`: the lists of parts 2 and 7. */
export interface SgxParts {
  readonly parts: readonly Pair[];
  readonly tcb: readonly Pair[];
  readonly configuration: readonly Pair[];
}

const pairs = (list: readonly Pair[]): Uint8Array[] =>
  list.map(([suffix, value]) => sequence(oid(`${SGX_EXTENSION_OID}.${suffix}`), value));

/** The DER value of the extension, its parts in the order of their suffixes. */
export function encodeSgx({ parts, tcb, configuration }: SgxParts): Uint8Array {
  const all: Pair[] = [...parts, ['2', sequence(...pairs(tcb))], ['7', sequence(...pairs(configuration))]];
  return sequence(...pairs(all.toSorted(([a], [b]) => Number(a) - Number(b))));
}

/** SGX type "scalable". */
const SGX_TYPE_SCALABLE = 1;

/** The parts for a platform with these ids, 16 bytes each. */
export function sgxParts(ids: { readonly ppid: Uint8Array; readonly piid: Uint8Array }): SgxParts {
  const { componentSvns, pceSvn, cpuSvn, pceId, fmspc } = TDX_PLATFORM;
  return {
    parts: [
      ['1', octetString(ids.ppid)],
      ['3', octetString(pceId)],
      ['4', octetString(fmspc)],
      ['5', enumerated(SGX_TYPE_SCALABLE)],
      ['6', octetString(ids.piid)],
    ],
    tcb: [
      ...componentSvns.map((svn, index): Pair => [`2.${index + 1}`, integer(svn)]),
      ['2.17', integer(pceSvn)],
      ['2.18', octetString(cpuSvn)],
    ],
    configuration: [
      ['7.1', boolean(true)], // dynamic platform
      ['7.2', boolean(true)], // cached keys
      ['7.3', boolean(true)], // SMT enabled
    ],
  };
}

export const sgxExtension = (ids: Parameters<typeof sgxParts>[0]): EncodedExtension =>
  vendorExtension(SGX_EXTENSION_OID, encodeSgx(sgxParts(ids)));
