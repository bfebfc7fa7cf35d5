/**
 * AMD's certificates and the revocation list of its root (docs/protocol/attestation.md 7): the pinned ARK and
 * ASK of a product line, and the VCEK, the key of one chip at one TCB. Those in the document are ignored.
 */
import { type Der, malformed, parseDer, TAG } from '../../crypto/der.ts';
import { readOctetString, readSmallInteger, readText } from '../../crypto/der-values.ts';
import { PrivatemodeError } from '../../errors.ts';
import { attempt, finding, rowsFrom } from '../check.ts';
import {
  type CollateralSource,
  currentList,
  MAX_EMBEDDED_CRL_BYTES,
  obtained,
  type ReadList,
  readFetchedList,
  readRevocationList,
} from '../collateral.ts';
import type { TrustRoots } from '../roots/production.ts';
import { issuedBy, NOT_YET, verified } from '../validity.ts';
import {
  type Certificate,
  decodeOneCertificate,
  EXTENSION_OID,
  maySignCertificates,
  type Name,
  nameText,
  parseCertificate,
  sameName,
  unhandledCritical,
  verifySignedBy,
} from '../x509.ts';
import { type TcbParts, tcbParts } from './packed-fields.ts';
import type { Product } from './product.ts';
import type { SnpReport } from './report.ts';

export type Roots = Readonly<ReturnType<typeof readRoots>>;

/** Throws attestation_failed if the roots of this line are not pinned, evidence_malformed if unreadable. */
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

/** Whether the name has AMD's attributes, once each in any order, and this common name. */
export function isAmdName({ attributes }: Name, commonName: string): boolean {
  const expected = [...AMD_NAME, `CN=${commonName}`];
  const found = attributes.map(({ type, value }) => `${type}=${value}`);
  return found.length === expected.length && expected.every((attribute) => found.includes(attribute));
}

/** What is wrong with the pinned certificates: they must be like AMD's, of this product line, and a chain. */
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
  if (signatureAlgorithm.name !== 'rsassa-pss')
    return `${commonName} is signed with ${signatureAlgorithm.name}`;
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

/** All of AMD's extensions must be there, and no others but the authority key identifier. */
export function readVcekExtensions({ extensions }: Certificate) {
  for (const oid of extensions.keys()) {
    if (!MANDATORY.includes(oid) && oid !== EXTENSION_OID.authorityKeyIdentifier) {
      throw malformed(`the VCEK has the extension ${oid}, which does not belong there`);
    }
  }
  const value = (oid: string): Uint8Array => {
    const found = extensions.get(oid)?.value;
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

/** A list, and for a person: whether it is the one in the document, and if not, why not. */
export type ArkCrl = ReadList & { readonly embedded: boolean; readonly origin: string };

/**
 * Obtains the list: the one in the evidence if it can be read and is in force, else one that `fetch` fetches.
 * A current list with a wrong signature is not replaced: the sender of the evidence could otherwise choose
 * between the two. Throws collateral_unavailable.
 */
export async function obtainArkCrl(
  crl: Uint8Array | undefined,
  now: Date,
  fetch: () => ReturnType<CollateralSource['amdCrl']>,
): Promise<ArkCrl> {
  const embedded = crl && attempt(() => readRevocationList({ crl }, MAX_EMBEDDED_CRL_BYTES)).value;
  const current = embedded && currentList(embedded.crl, now);
  // At nextUpdate itself, another list is due already (docs/protocol/attestation.md 7, CRL no. 1).
  if (current?.outcome === 'pass' && (embedded?.crl.nextUpdate ?? now) > now) {
    return { ...(embedded as ReadList), embedded: true, origin: 'from the document' };
  }
  const isEarly = current?.detail?.clock === 'early';
  const inDocument = `the one in the document being ${isEarly ? `not current: ${NOT_YET}` : whyNot(crl, embedded)}`;
  try {
    return { ...readFetchedList(await fetch()), embedded: false, origin: `fetched, ${inDocument}` };
  } catch (cause) {
    if (!(cause instanceof PrivatemodeError)) throw cause;
    const detail = isEarly ? current.detail : cause.detail;
    throw new PrivatemodeError(cause.code, `${cause.message} (needed, ${inDocument})`, { cause, detail });
  }
}

function whyNot(bytes: Uint8Array | undefined, read: ReadList | undefined): string {
  if (bytes === undefined) return 'absent';
  if (read === undefined) return bytes.length > MAX_EMBEDDED_CRL_BYTES ? 'too large' : 'unreadable';
  return 'not current';
}

interface CrlSubject {
  readonly arkCrl: ArkCrl;
  readonly roots: Roots;
  readonly now: Date;
}

export const CRL_ROWS = rowsFrom<CrlSubject>('attestation.md 7', {
  'snp.crl.available': {
    title: 'Revocation list',
    source: 'attestation.md 7 CRL no. 1',
    expected: 'a CRL of the ARK in the document, or one that can be fetched',
    judge: ({ arkCrl, now }) => obtained(arkCrl, arkCrl.origin, now),
  },
  'snp.crl.signature': {
    title: 'Signature on the revocation list',
    source: 'attestation.md 7 CRL no. 2',
    expected: 'issued and signed by the pinned ARK',
    judge: ({ arkCrl: { crl }, roots: { ark } }) =>
      ark.keyUsage?.has('cRLSign') === false ? verified(false) : issuedBy(crl, ark),
  },
  'snp.crl.current': {
    title: 'Freshness of the revocation list',
    source: 'attestation.md 7 CRL no. 4',
    expected: 'thisUpdate has passed, nextUpdate has not',
    judge: ({ arkCrl: { crl }, now }) => currentList(crl, now),
  },
  'snp.crl.age': {
    title: 'Age of the revocation list',
    source: 'attestation.md 7 CRL no. 5',
    expected: 'shown, with who chose the list; later revocations are unknown',
    judge: ({ arkCrl: { crl, embedded } }) => {
      const whose = embedded ? 'chosen by whoever sent the evidence' : 'not from the evidence';
      return finding(true, `issued ${crl.thisUpdate.toISOString()}; ${whose}`);
    },
  },
  'snp.crl.ask': {
    title: 'The ASK is not revoked',
    source: 'attestation.md 7 CRL no. 3',
    expected: 'the serial number of the pinned ASK is not on the list',
    judge: ({ arkCrl: { crl }, roots: { ask } }) => {
      const revoked = crl.revoked.has(ask.serial);
      return finding(!revoked, `${ask.serial} ${revoked ? 'is revoked' : 'is not listed'}`);
    },
  },
});
