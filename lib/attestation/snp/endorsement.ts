/**
 * Reads AMD's certificates: the pinned ARK and ASK of a product line, and the VCEK, which is the key of one
 * chip at one TCB (docs/protocol/attestation.md 7). ASK and ARK in the document are ignored.
 */
import { type Der, malformed, parseDer, TAG } from '../../crypto/der.ts';
import { PrivatemodeError } from '../../errors.ts';
import type { TrustRoots } from '../roots/production.ts';
import {
  type Certificate,
  decodeOneCertificate,
  maySignCertificates,
  parseCertificate,
  unhandledCritical,
  verifySignedBy,
} from '../x509/certificate.ts';
import { readOctetString, readSmallInteger, readText } from '../x509/der-values.ts';
import { EXTENSION_OID, extensionValue } from '../x509/extensions.ts';
import { type Name, nameText, sameName } from '../x509/name.ts';
import { isPssSha384 } from '../x509/signed.ts';
import { type TcbParts, tcbParts } from './packed-fields.ts';
import type { Product } from './product.ts';
import type { SnpReport } from './report.ts';

export type Roots = Readonly<ReturnType<typeof readRoots>>;

/**
 * Reads the two pinned certificates of a product line. Throws attestation_failed if none are pinned, and
 * evidence_malformed if they cannot be read.
 */
export function readRoots(roots: TrustRoots, product: string) {
  const pair = Object.hasOwn(roots.snp, product) ? roots.snp[product as Product] : undefined;
  if (pair === undefined) {
    const options = { detail: { missingRoot: product } };
    throw new PrivatemodeError('attestation_failed', `no trust root for ${product} is configured`, options);
  }
  const read = (pem: string): Certificate => parseCertificate(decodeOneCertificate(pem));
  return { product: product as Product, ark: read(pair.ark), ask: read(pair.ask) };
}

const AMD_NAME = ['C=US', 'L=Santa Clara', 'ST=CA', 'O=Advanced Micro Devices', 'OU=Engineering'];

/**
 * Whether the name has the attributes of every name of AMD's chain, once each in any order, and this common
 * name.
 */
export function isAmdName({ attributes }: Name, commonName: string): boolean {
  const expected = [...AMD_NAME, `CN=${commonName}`];
  const found = attributes.map(({ type, value }) => `${type}=${value}`);
  return found.length === expected.length && expected.every((attribute) => found.includes(attribute));
}

/**
 * What is wrong with the pinned certificates: they must be like those that AMD issues, of this product line,
 * and form a chain. Undefined if nothing is.
 */
export async function rootDefect({ product, ark, ask }: Roots): Promise<string | undefined> {
  const defect = defectOf(ark, `ARK-${product}`) ?? defectOf(ask, `SEV-${product}`);
  if (defect !== undefined) return defect;
  const named = [ark, ask].every(({ issuer }) => sameName(issuer, ark.subject));
  const chained = named && (await verifySignedBy(ark, ark)) && (await verifySignedBy(ask, ark));
  return chained ? undefined : 'they do not chain';
}

function defectOf(certificate: Certificate, commonName: string): string | undefined {
  const { version, signatureAlgorithm, publicKey, subject } = certificate;
  if (!isAmdName(subject, commonName)) return `a root is named ${nameText(subject)}`;
  if (version !== 3) return `${commonName} is no version 3 certificate`;
  if (!isPssSha384(signatureAlgorithm)) return `${commonName} is signed with ${signatureAlgorithm.name}`;
  if (publicKey.rsa?.modulusBits !== 4096 || publicKey.rsa.exponent !== 65537n) {
    return `${commonName} has no RSA key of 4096 bits with exponent 65537`;
  }
  if (!maySignCertificates(certificate)) return `${commonName} may not sign certificates`;
  const [critical] = unhandledCritical(certificate, [EXTENSION_OID.basicConstraints, EXTENSION_OID.keyUsage]);
  return critical === undefined ? undefined : `${commonName} has the critical extension ${critical}`;
}

/** The question to AMD for the VCEK of the report's chip and TCB. */
export function vcekQuery({ chipId, reportedTcb }: SnpReport, product: Product) {
  const { bootloader, tee, snp, microcode } = tcbParts(reportedTcb);
  return { product, chipId: Buffer.from(chipId).toString('hex'), bootloader, tee, snp, microcode };
}

const PEM_START = '-----BEGIN';

/** DER, or PEM with one certificate, which upstream tolerates. Throws evidence_malformed. */
export function readVcek(bytes: Uint8Array): Certificate {
  const isPem = Buffer.from(bytes.subarray(0, PEM_START.length)).toString('latin1') === PEM_START;
  return parseCertificate(isPem ? decodeOneCertificate(Buffer.from(bytes).toString('latin1')) : bytes);
}

const AMD = '1.3.6.1.4.1.3704.1';
const STRUCT_VERSION = `${AMD}.1`;
const PRODUCT_NAME = `${AMD}.2`;
const HWID = `${AMD}.4`;
const HWID_BYTES = 64;
const TCB_EXTENSIONS = ['bootloader', 'tee', 'snp', 'spl4', 'spl5', 'spl6', 'spl7', 'microcode'] as const;
const TCB_OIDS = TCB_EXTENSIONS.map((part, index) => [part, `${AMD}.3.${index + 1}`] as const);
const MANDATORY = [STRUCT_VERSION, PRODUCT_NAME, HWID, ...TCB_OIDS.map(([, oid]) => oid)];

/**
 * Reads AMD's extensions. All of them must be there, and no others but the authority key identifier. Throws
 * evidence_malformed.
 */
export function readVcekExtensions({ extensions }: Certificate) {
  for (const { oid } of extensions) {
    if (!MANDATORY.includes(oid) && oid !== EXTENSION_OID.authorityKeyIdentifier) {
      throw malformed(`the VCEK has the extension ${oid}, which does not belong there`);
    }
  }
  const value = (oid: string): Uint8Array => {
    const found = extensionValue(extensions, oid);
    if (found === undefined) throw malformed(`the VCEK lacks the extension ${oid}`);
    return found;
  };
  const element = (oid: string): Der => parseDer(value(oid));
  if (readSmallInteger(element(STRUCT_VERSION), 255) !== 0) throw malformed('a VCEK of another structure');
  const productName = element(PRODUCT_NAME);
  if (productName.tag !== TAG.ia5String) throw malformed('the product name of the VCEK is no IA5String');
  const levels = TCB_OIDS.map(([part, oid]) => [part, readSmallInteger(element(oid), 255)]);
  return {
    /** E.g. `Milan-B0`, `Genoa`. */
    productName: readText(productName),
    tcb: Object.fromEntries(levels) as TcbParts,
    /** 64 bytes: the chip. */
    hwid: readHwid(value(HWID)),
  };
}

/** Reads 64 raw bytes, or an OCTET STRING of 64 bytes. */
function readHwid(value: Uint8Array): Uint8Array {
  const hwid = value.length === HWID_BYTES ? value : readOctetString(parseDer(value));
  if (hwid.length !== HWID_BYTES) throw malformed(`the VCEK names a chip of ${hwid.length} bytes`);
  return hwid;
}
