/**
 * Reads AMD's certificates and the revocation list of AMD's root (docs/protocol/attestation.md 7). ARK and
 * ASK are pinned; copies in the document are ignored. A VCEK certifies the key of one chip at one TCB.
 */
import { malformed, parseDer, readOctetString, readSmallInteger, readText, TAG } from '../../crypto/der.ts';
import { PrivatemodeError } from '../../errors.ts';
import { attempt, finding, hex, type Rows, row } from '../check.ts';
import * as collateral from '../collateral.ts';
import type { TrustRoots } from '../roots/production.ts';
import { issuedBy, verified } from '../validity.ts';
import { type Certificate, certificateIn, EXTENSION_OID, parseCertificate } from '../x509.ts';
import { type Product, type TcbParts, tcbParts } from './packed-fields.ts';
import type { SnpReport } from './report.ts';

export type Roots = Readonly<ReturnType<typeof readRoots>>;

/** Throws attestation_failed if `product` has no pinned roots, evidence_malformed for unreadable roots. */
export function readRoots(roots: TrustRoots, product: string) {
  const pair = Object.hasOwn(roots.snp, product) ? roots.snp[product as Product] : undefined;
  if (pair === undefined)
    throw new PrivatemodeError('attestation_failed', `no trust root for ${product} is configured`);
  return { product: product as Product, ark: certificateIn(pair.ark), ask: certificateIn(pair.ask) };
}

/** The query to AMD for the VCEK of the chip and the TCB version that the report states. */
export function vcekQuery({ chipId, reportedTcb }: SnpReport, product: Product) {
  const { bootloader, tee, snp, microcode } = tcbParts(reportedTcb);
  return { product, chipId: hex(chipId), bootloader, tee, snp, microcode };
}

/** Like the reference proxy, reads a VCEK in DER or in PEM. Throws evidence_malformed. */
export function readVcek(bytes: Uint8Array): Certificate {
  const text = Buffer.from(bytes).toString('latin1');
  return text.startsWith('-----BEGIN') ? certificateIn(text) : parseCertificate(bytes);
}

const AMD = '1.3.6.1.4.1.3704.1';
/** The parts of the TCB in the order of the extensions 3704.1.3.1 to 3704.1.3.8. */
const LEVELS = ['bootloader', 'tee', 'snp', 'spl4', 'spl5', 'spl6', 'spl7', 'microcode'] as const;
const SUFFIXES = ['1', '2', '4', ...LEVELS.map((_, index) => `3.${index + 1}`)];

/** Demands all of AMD's extensions. The only other extension allowed is the authority key identifier. */
export function readVcekExtensions({ extensions }: Certificate) {
  const known = [EXTENSION_OID.authorityKeyIdentifier, ...SUFFIXES.map((suffix) => `${AMD}.${suffix}`)];
  const foreign = [...extensions.keys()].find((oid) => !known.includes(oid));
  if (foreign !== undefined)
    throw malformed(`the VCEK has the extension ${foreign}, which does not belong there`);
  const value = (suffix: string): Uint8Array => {
    const found = extensions.get(`${AMD}.${suffix}`)?.value;
    if (found === undefined) throw malformed(`the VCEK lacks the extension ${AMD}.${suffix}`);
    return found;
  };
  const byte = (suffix: string): number => readSmallInteger(parseDer(value(suffix)), 255);
  if (byte('1') !== 0) throw malformed('a VCEK of another structure');
  const hwid = value('4').length === 64 ? value('4') : readOctetString(parseDer(value('4')));
  if (hwid.length !== 64) throw malformed(`the VCEK names a chip of ${hwid.length} bytes`);
  return {
    /** The name of the product, such as `Milan-B0` or `Genoa`. */
    productName: readText(parseDer(value('2'), TAG.ia5String)),
    tcb: Object.fromEntries(LEVELS.map((part, index) => [part, byte(`3.${index + 1}`)])) as TcbParts,
    /** The 64-byte id of the chip. The VCEK holds the id directly or in an OCTET STRING. */
    hwid,
  };
}

/**
 * The size limit in bytes of a CRL in the evidence. Real CRLs have under 10 KB, and parsing time grows with
 * size. AMD's host may send a larger CRL, because the sender of the evidence did not choose that CRL.
 */
const MAX_EMBEDDED_CRL_BYTES = 64 * 1024;

const NONE_EMBEDDED = 'as the document has none that is in force';

/**
 * Obtains the certificate revocation list (CRL) of the ARK. Uses the CRL in the evidence if that CRL is
 * readable and in force. Otherwise, calls `fetch`. A CRL in force is used even if its signature is wrong, so
 * that the sender of the evidence cannot choose between two CRLs. Throws collateral_unavailable.
 */
export async function obtainArkCrl(
  crl: Uint8Array | undefined,
  now: Date,
  fetch: () => ReturnType<collateral.CollateralSource['amdCrl']>,
) {
  const read = crl && attempt(() => collateral.readRevocationList({ crl }, MAX_EMBEDDED_CRL_BYTES)).value;
  const current = read && collateral.currentList(read.crl, now);
  // At the moment of nextUpdate, the next CRL is already due (docs/protocol/attestation.md 7, CRL no. 1).
  const isDue = (read?.crl.nextUpdate ?? now) <= now;
  if (read && current?.outcome === 'pass' && !isDue) return { ...read, embedded: true };
  try {
    return { ...collateral.readFetchedList(await fetch()), embedded: false };
  } catch (cause) {
    if (!(cause instanceof PrivatemodeError)) throw cause;
    const detail = current?.detail?.clock === 'early' ? current.detail : cause.detail;
    throw new PrivatemodeError(cause.code, `${cause.message} (needed, ${NONE_EMBEDDED})`, { cause, detail });
  }
}

type ArkCrl = Awaited<ReturnType<typeof obtainArkCrl>>;

export const CRL_ROWS: Rows<{ arkCrl: ArkCrl; roots: Roots; now: Date }> = [
  row('snp.crl.available', 'Revocation list', '7 CRL no. 1', {
    expected: 'a CRL of the ARK in the document, or one that can be fetched',
    judge: ({ arkCrl, now }) =>
      collateral.obtained(arkCrl, arkCrl.embedded ? 'from the document' : `fetched, ${NONE_EMBEDDED}`, now),
  }),
  row('snp.crl.signature', 'Signature on the revocation list', '7 CRL no. 2', {
    expected: 'issued and signed by the pinned ARK',
    judge: ({ arkCrl: { crl }, roots: { ark } }) =>
      ark.keyUsage?.has('cRLSign') === false ? verified(false) : issuedBy(crl, ark),
  }),
  row('snp.crl.current', 'Freshness of the revocation list', '7 CRL no. 4', {
    expected: 'thisUpdate has passed, nextUpdate has not',
    judge: ({ arkCrl: { crl }, now }) => collateral.currentList(crl, now),
  }),
  row('snp.crl.age', 'Age of the revocation list', '7 CRL no. 5', {
    expected: 'shown, with who chose the list; later revocations are unknown',
    judge: ({ arkCrl: { crl, embedded } }) => {
      const whose = embedded ? 'chosen by whoever sent the evidence' : 'not from the evidence';
      return finding(true, `issued ${crl.thisUpdate.toISOString()}; ${whose}`);
    },
  }),
  row('snp.crl.ask', 'The ASK is not revoked', '7 CRL no. 3', {
    expected: 'the serial number of the pinned ASK is not on the list',
    judge: ({ arkCrl: { crl }, roots: { ask } }) => {
      const revoked = crl.revoked.has(ask.serial);
      return finding(!revoked, `${ask.serial} ${revoked ? 'is revoked' : 'is not listed'}`);
    },
  }),
];
