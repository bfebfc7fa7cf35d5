/**
 * What the SEV-SNP checks judge: the message, and the certificates of AMD's chain and the revocation list of its root, which are
 * obtained and read here (docs/protocol/attestation.md 7). The VCEK is the key of one chip at one TCB; ASK and ARK are pinned, the
 * ones in the document are ignored.
 */

import { type Der, malformed, parseDer, TAG } from '../../crypto/der.ts';
import { PrivatemodeError } from '../../errors.ts';
import { type Attempt, attempt, attemptAsync } from '../check.ts';
import { MAX_EMBEDDED_CRL_BYTES, type ReadList, readRevocationList } from '../collateral.ts';
import type { EvidenceContext, TrustRoots } from '../evidence.ts';
import { clockDetail, NOT_YET } from '../findings.ts';
import type { SnpReferenceValues } from '../reference-values.ts';
import { type Certificate, decodeOneCertificate, parseCertificate } from '../x509/certificate.ts';
import { isCurrent } from '../x509/crl.ts';
import { readOctetString, readSmallInteger, readText } from '../x509/der-values.ts';
import { EXTENSION_OID, extensionValue } from '../x509/extensions.ts';
import { type TcbParts, tcbParts } from './packed-fields.ts';
import type { Product } from './product.ts';
import { SNP_EXTRA_CRL, type SnpAttestation, signingKey } from './report.ts';

export interface SnpSubject extends SnpAttestation {
  /** The reference value that the message is judged by. */
  readonly entry: SnpReferenceValues;
  readonly context: EvidenceContext;
  readonly roots: Attempt<Readonly<ReturnType<typeof readRoots>>>;
  /** Absent until verify.ts has obtained them. */
  readonly vcek?: Obtained<{ readonly certificate: Certificate }>;
  readonly vcekExtensions?: Attempt<Readonly<ReturnType<typeof readVcekExtensions>>>;
  readonly arkCrl?: Obtained<ReadList & { readonly embedded: boolean }>;
  /** The result of `matchMeasurement`. */
  readonly vcpus?: number | 'exact' | undefined;
}

/** What came with the evidence or was fetched; `origin` says for people which, and why. */
type Obtained<T> = Attempt<T & { readonly origin: string }>;

/** The two pinned certificates of a product. Throws evidence_malformed. */
export function readRoots(roots: TrustRoots, product: Product) {
  const pair = roots.snp[product];
  if (pair === undefined) {
    const options = { detail: { missingRoot: product } };
    throw new PrivatemodeError('evidence_malformed', `no trust root for ${product} is configured`, options);
  }
  const read = (pem: string): Certificate => parseCertificate(decodeOneCertificate(pem));
  return { ark: read(pair.ark), ask: read(pair.ask) };
}

/**
 * The VCEK that came with the evidence, else, where `mayFetch` allows it, one fetched for the report's chip and TCB.
 * Undefined for a report that another kind of key signed: there is a root for VCEKs only.
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
  return attemptAsync(async () => ({
    certificate: readVcek(await context.collateral.amdVcek(query)),
    origin: 'fetched',
  }));
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

/** AMD's extensions: all of them, no others. Throws evidence_malformed. */
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

/** 64 raw bytes, or an OCTET STRING of them. */
function readHwid(value: Uint8Array): Uint8Array {
  const hwid = value.length === HWID_BYTES ? value : readOctetString(parseDer(value));
  if (hwid.length !== HWID_BYTES) throw malformed(`the VCEK names a chip of ${hwid.length} bytes`);
  return hwid;
}

/**
 * The CRL that came with the evidence if it parses and is in force, else one fetched where `mayFetch` allows it. A
 * current CRL with a wrong signature is not replaced: that would let an attacker choose between the two.
 */
export async function obtainArkCrl(subject: SnpSubject, mayFetch: boolean): Promise<SnpSubject['arkCrl']> {
  const { certificates, entry, context } = subject;
  const crl = certificates.extras.get(SNP_EXTRA_CRL);
  const embedded = crl && attempt(() => readRevocationList({ crl }, MAX_EMBEDDED_CRL_BYTES))?.value;
  // At the moment of nextUpdate another one is due (docs/protocol/attestation.md 7, CRL no. 1).
  const isDue = (embedded?.crl.nextUpdate ?? context.now) <= context.now;
  if (embedded !== undefined && isCurrent(embedded.crl, context.now) && !isDue) {
    return { value: { ...embedded, embedded: true, origin: 'from the document' } };
  }
  if (!mayFetch) return undefined;
  const isEarly = embedded !== undefined && embedded.crl.thisUpdate > context.now;
  const inDocument = `the one in the document being ${isEarly ? `not current: ${NOT_YET}` : whyNot(crl, embedded)}`;
  const fetched = await attemptAsync(async () => ({
    ...readRevocationList(await context.collateral.amdCrl({ product: entry.product })),
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
