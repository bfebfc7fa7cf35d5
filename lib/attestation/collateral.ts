/**
 * Collateral: the certificates, revocation lists and TCB info that the document does not carry, and that a
 * verification fetches from AMD or Intel. This file also has the other inputs of a verification.
 */
import { malformed } from '../crypto/der.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Finding, finding } from './check.ts';
import type { TrustRoots } from './roots/production.ts';
import type { Product } from './snp/packed-fields.ts';
import { inForce } from './validity.ts';
import { type Crl, parseCrl } from './x509.ts';

/** Every method rejects only with the error collateral_unavailable. */
export interface CollateralSource {
  /** Returns the VCEK in DER. TCB parts are decimal patch levels of REPORTED_TCB, `chipId` lower-case hex. */
  amdVcek(
    query: { product: Product; chipId: string } & Record<'bootloader' | 'tee' | 'snp' | 'microcode', number>,
  ): Promise<Uint8Array>;
  amdCrl(query: { product: Product }): Promise<RevocationList>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  /**
   * Pass the same number to `intelQeIdentity` and to `intelTcbInfo`. Without a number, Intel serves its
   * default set of collateral, which may be older than the set that a manifest demands.
   */
  intelQeIdentity(query: { evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelPckCrl(): Promise<RevocationList & { readonly issuerChain: string }>;
  /** `url` is the CRL distribution point that the root certificate names. */
  intelRootCrl(query: { url: string }): Promise<RevocationList>;
}

/** The inputs of a verification, the same for both kinds of evidence. */
export interface EvidenceContext {
  /** The report data for the document's own manifests, 64 bytes (docs/protocol/attestation.md 3.2). */
  readonly expectedReportData: Uint8Array;
  /** The policy hashes of all coordinators in the expected manifest, 32 bytes each (4.3, 19.12 rule 11). */
  readonly coordinatorHashes: readonly Uint8Array[];
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
}

/** Whether collateral was fetched now, or is a stored copy. */
export interface Obtained {
  /** When a stored copy was fetched (ms since 1970), and why no newer one could be fetched now. */
  readonly stored?: { readonly fetchedAt: number; readonly because: string } | undefined;
}

export interface RevocationList extends Obtained {
  /** The revocation list in DER. */
  readonly crl: Uint8Array;
}

/** A JSON body exactly as it was received, and the PEM chain of the certificate that signed this body. */
export interface SignedCollateral extends Obtained {
  readonly body: string;
  readonly issuerChain: string;
}

type ReadList = Readonly<ReturnType<typeof readRevocationList>>;

/** The most bytes that a check accepts from a vendor's host, so nobody needs to fetch more. */
export const MAX_FETCHED_BYTES = 256 * 1024;

/** Reads a revocation list. Throws evidence_malformed for more than `maxBytes` bytes, and for wrong DER. */
export function readRevocationList({ crl, stored }: RevocationList, maxBytes = MAX_FETCHED_BYTES) {
  if (crl.length > maxBytes) throw malformed('the CRL is too large');
  return { crl: parseCrl(crl), stored };
}

/** Reads a revocation list that was fetched. Throws collateral_unavailable if the list cannot be read. */
export const readFetchedList = (list: RevocationList): ReadList =>
  asCollateral('the CRL', () => readRevocationList(list));

/** Reads a vendor's data. Errors become collateral_unavailable, because the service did not send the data. */
export function asCollateral<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    throw new PrivatemodeError('collateral_unavailable', `${what} cannot be read: ${error.message}`);
  }
}

/** Returns `origin`. For a stored copy, returns when it was fetched and why it could not be fetched now. */
export function howObtained({ stored }: Obtained, origin: string): string {
  if (stored === undefined) return origin;
  const at = new Date(stored.fetchedAt).toISOString();
  return `stored at ${at}, because it could not be fetched now (${stored.because})`;
}

/** Always passes. Tells how the list was obtained and when it was issued (`age`: seconds, at least 0). */
export function obtained(list: ReadList, origin: string, now: Date): Finding {
  const { crlNumber, thisUpdate } = list.crl;
  const age = Math.max(0, Math.floor((now.getTime() - thisUpdate.getTime()) / 1000));
  const how = howObtained(list, origin);
  return { ...finding(true, `${how}; number ${crlNumber}, issued ${thisUpdate.toISOString()}`), age };
}

/** Passes if the list has been issued and names a next update that is not yet due. */
export function currentList({ thisUpdate, nextUpdate }: Crl, now: Date): Finding {
  if (nextUpdate === undefined) return finding(false, 'it names no next update');
  return inForce(now, { notBefore: thisUpdate, notAfter: nextUpdate });
}
