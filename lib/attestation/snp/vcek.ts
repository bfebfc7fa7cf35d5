/**
 * The subject of the SEV-SNP checks: the message, the certificates of AMD's chain, and the revocation list of
 * its root. This file obtains and reads them (docs/protocol/attestation.md 7). The VCEK is the key of one
 * chip at one TCB. ASK and ARK are pinned; those in the document are ignored.
 */

import { type Der, malformed, parseDer, TAG } from '../../crypto/der.ts';
import { readOctetString, readSmallInteger, readText } from '../../crypto/der-values.ts';
import { PrivatemodeError } from '../../errors.ts';
import { clockDetail, NOT_YET } from '../certificate-findings.ts';
import { attempt, attemptAsync, type Settled } from '../check.ts';
import {
  asCollateral,
  MAX_EMBEDDED_CRL_BYTES,
  type ReadList,
  readFetchedList,
  readRevocationList,
} from '../collateral.ts';
import { isCurrent } from '../crl.ts';
import type { EvidenceContext, TrustRoots } from '../evidence.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import { type Certificate, decodeOneCertificate, EXTENSION_OID, parseCertificate } from '../x509.ts';
import { type TcbParts, tcbParts } from './packed-fields.ts';
import type { Product } from './product.ts';
import { SNP_EXTRA_CRL, type SnpAttestation, signingKey } from './report.ts';

export interface SnpSubject extends SnpAttestation {
  /** The reference value by which the message is judged. */
  readonly entry: SnpReferenceValues;
  readonly context: EvidenceContext;
  readonly roots: Settled<Readonly<ReturnType<typeof readRoots>>>;
  /** Absent, as the next two are, until verify-snp.ts has obtained it. */
  readonly vcek?: Obtained<{ readonly certificate: Certificate }>;
  readonly vcekExtensions?: Settled<Readonly<ReturnType<typeof readVcekExtensions>>>;
  readonly arkCrl?: Obtained<ReadList & { readonly embedded: boolean }>;
  /** The result of `matchMeasurement`. */
  readonly vcpus?: number | 'exact' | undefined;
}

/** A value from the evidence or from a fetch; `origin` tells a person which of the two, and why. */
type Obtained<T> = Settled<T & { readonly origin: string }>;

/**
 * Reads the two pinned certificates of a product. Throws attestation_failed if it has none, and
 * evidence_malformed if they cannot be read.
 */
export function readRoots(roots: TrustRoots, product: Product) {
  const pair = roots.snp[product];
  if (pair === undefined) {
    const options = { detail: { missingRoot: product } };
    throw new PrivatemodeError('attestation_failed', `no trust root for ${product} is configured`, options);
  }
  const read = (pem: string): Certificate => parseCertificate(decodeOneCertificate(pem));
  return { ark: read(pair.ark), ask: read(pair.ask) };
}

/**
 * Obtains the VCEK: the one in the evidence, else, if `mayFetch` is true, the one that AMD serves for the
 * report's chip and TCB. Undefined if the evidence has none and `mayFetch` is false, or if another kind of
 * key signed the report: only VCEKs have a root.
 */
export async function obtainVcek(subject: SnpSubject, mayFetch: boolean): Promise<SnpSubject['vcek']> {
  const { report, certificates, entry, context } = subject;
  const { vcek } = certificates;
  if (signingKey(report) !== 0) return undefined;
  if (vcek) return attempt(() => ({ certificate: readVcek(vcek), origin: 'from the document' }));
  if (!mayFetch) return undefined;
  const { bootloader, tee, snp, microcode } = tcbParts(report.reportedTcb);
  const chipId = Buffer.from(report.chipId).toString('hex');
  const query = { product: entry.product, chipId, bootloader, tee, snp, microcode };
  return attemptAsync(async () => {
    const fetched = await context.collateral.amdVcek(query);
    return { certificate: asCollateral('the VCEK', () => readVcek(fetched)), origin: 'fetched' };
  });
}

const PEM_START = '-----BEGIN';

/** DER, or PEM with one certificate, which upstream tolerates. Throws evidence_malformed. */
function readVcek(bytes: Uint8Array): Certificate {
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

/**
 * Obtains the CRL: the one in the evidence if it can be read and is in force, else a fetched one if
 * `mayFetch` is true. A current CRL with a wrong signature is not replaced: the sender of the evidence could
 * otherwise choose between the two.
 */
export async function obtainArkCrl(subject: SnpSubject, mayFetch: boolean): Promise<SnpSubject['arkCrl']> {
  const { certificates, entry, context } = subject;
  const crl = certificates.extras.get(SNP_EXTRA_CRL);
  const embedded = crl && attempt(() => readRevocationList({ crl }, MAX_EMBEDDED_CRL_BYTES))?.value;
  // At nextUpdate itself, another list is due already (docs/protocol/attestation.md 7, CRL no. 1).
  const isDue = (embedded?.crl.nextUpdate ?? context.now) <= context.now;
  if (embedded !== undefined && isCurrent(embedded.crl, context.now) && !isDue) {
    return { value: { ...embedded, embedded: true, origin: 'from the document' } };
  }
  if (!mayFetch) return undefined;
  const isEarly = embedded !== undefined && embedded.crl.thisUpdate > context.now;
  const inDocument = `the one in the document being ${isEarly ? `not current: ${NOT_YET}` : whyNot(crl, embedded)}`;
  const fetched = await attemptAsync(async () => ({
    ...readFetchedList(await context.collateral.amdCrl({ product: entry.product })),
    embedded: false,
    origin: `fetched, ${inDocument}`,
  }));
  if (fetched === undefined || 'value' in fetched) return fetched;
  const { error: cause } = fetched;
  const detail = isEarly ? clockDetail('early') : cause.detail;
  return {
    error: new PrivatemodeError(cause.code, `${cause.message} (needed, ${inDocument})`, { cause, detail }),
  };
}

function whyNot(bytes: Uint8Array | undefined, read: ReadList | undefined): string {
  if (bytes === undefined) return 'absent';
  if (read === undefined) return bytes.length > MAX_EMBEDDED_CRL_BYTES ? 'too large' : 'unreadable';
  return 'not current';
}
