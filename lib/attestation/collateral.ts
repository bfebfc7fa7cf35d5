/**
 * Collateral: what the document does not carry and a verification asks the vendors for (certificates,
 * revocation lists, TCB info); and what else the verification of evidence is given.
 */
import { malformed } from '../crypto/der.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Finding, finding } from './check.ts';
import type { TrustRoots } from './roots/production.ts';
import type { Product } from './snp/packed-fields.ts';
import { inForce } from './validity.ts';
import { type Crl, parseCrl } from './x509.ts';

/** Every method rejects only with collateral_unavailable. */
export interface CollateralSource {
  /** DER. TCB parts are the decimal SPL values of REPORTED_TCB; chipId is lower-case hex. */
  amdVcek(
    query: { product: Product; chipId: string } & Record<'bootloader' | 'tee' | 'snp' | 'microcode', number>,
  ): Promise<Uint8Array>;
  amdCrl(query: { product: Product }): Promise<RevocationList>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  /**
   * Give this method and intelTcbInfo the same number. Without a number, Intel serves its default set, which
   * may be older than the set that a manifest demands.
   */
  intelQeIdentity(query: { evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelPckCrl(): Promise<RevocationList & { readonly issuerChain: string }>;
  /** `url` is the distribution point of the root certificate. */
  intelRootCrl(query: { url: string }): Promise<RevocationList>;
}

/** What the verification of evidence is given, whichever kind it is of. */
export interface EvidenceContext {
  /** 64 bytes, over the document's own manifests (docs/protocol/attestation.md 3.2). */
  readonly expectedReportData: Uint8Array;
  /** 32 bytes each: the policies of the coordinators in the expected manifest (4.3, 19.12 rule 11). */
  readonly coordinatorHashes: readonly Uint8Array[];
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
}

/** Whether collateral is the newest. */
export interface Obtained {
  /** Set if it stands in for what could not be fetched now: when it was (ms since 1970), and why not now. */
  readonly stored?: { readonly fetchedAt: number; readonly because: string } | undefined;
}

export interface RevocationList extends Obtained {
  /** DER. */
  readonly crl: Uint8Array;
}

/** A JSON body exactly as received, and the PEM chain of the certificate that signed it. */
export interface SignedCollateral extends Obtained {
  readonly body: string;
  readonly issuerChain: string;
}

type ReadList = Readonly<ReturnType<typeof readRevocationList>>;

/** Bytes. No check accepts more from a vendor's host, so nobody needs to fetch more. */
export const MAX_FETCHED_BYTES = 256 * 1024;

/** Throws evidence_malformed if the list has more than `maxBytes` bytes, or is no DER revocation list. */
export function readRevocationList({ crl, stored }: RevocationList, maxBytes = MAX_FETCHED_BYTES) {
  if (crl.length > maxBytes) throw malformed('the CRL is too large');
  return { crl: parseCrl(crl), stored };
}

/** The same for a list that was fetched, with the error of `asCollateral`. */
export const readFetchedList = (list: RevocationList): ReadList =>
  asCollateral('the CRL', () => readRevocationList(list));

/** Reads what a vendor's host sent, not the service: evidence_malformed becomes collateral_unavailable. */
export function asCollateral<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    throw new PrivatemodeError('collateral_unavailable', `${what} cannot be read: ${error.message}`);
  }
}

/** `origin`, or for what was stored: when it was fetched, and why it could not be fetched now. */
export function howObtained({ stored }: Obtained, origin: string): string {
  if (stored === undefined) return origin;
  const at = new Date(stored.fetchedAt).toISOString();
  return `stored at ${at}, because it could not be fetched now (${stored.because})`;
}

/** Always passes: says how the list was obtained, and when it was issued (`age` in seconds, at least 0). */
export function obtained(list: ReadList, origin: string, now: Date): Finding {
  const { crlNumber, thisUpdate } = list.crl;
  const age = Math.max(0, Math.floor((now.getTime() - thisUpdate.getTime()) / 1000));
  const how = howObtained(list, origin);
  return { ...finding(true, `${how}; number ${crlNumber}, issued ${thisUpdate.toISOString()}`), age };
}

/** Passes if the list was issued already, and names a next update that is not yet due. */
export function currentList({ thisUpdate, nextUpdate }: Crl, now: Date): Finding {
  if (nextUpdate === undefined) return finding(false, 'it names no next update');
  return inForce(now, { notBefore: thisUpdate, notAfter: nextUpdate });
}
