/**
 * Defines collateral: the certificates, certificate revocation lists (CRLs) and TCB info that a verification
 * fetches from AMD or Intel. This file also defines the other inputs of a verification.
 */
import { malformed } from '../crypto/der.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Finding, finding } from './check.ts';
import type { TrustRoots } from './roots/production.ts';
import type { Product } from './snp/packed-fields.ts';
import { inForce } from './validity.ts';
import { type Crl, parseCrl } from './x509.ts';

/** Every method of a collateral source rejects only with the error collateral_unavailable. */
export interface CollateralSource {
  /** Returns the VCEK in DER. TCB parts are the patch levels in REPORTED_TCB; `chipId` is lower-case hex. */
  amdVcek(
    query: { product: Product; chipId: string } & Record<'bootloader' | 'tee' | 'snp' | 'microcode', number>,
  ): Promise<Uint8Array>;
  amdCrl(query: { product: Product }): Promise<RevocationList>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  /**
   * Pass the same evaluation data number to `intelQeIdentity` and `intelTcbInfo`. Without this number, Intel
   * serves its default set of collateral, which may be older than the set that a manifest demands.
   */
  intelQeIdentity(query: { evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelPckCrl(): Promise<RevocationList & { readonly issuerChain: string }>;
  /** `url` is the CRL distribution point that the root certificate names. */
  intelRootCrl(query: { url: string }): Promise<RevocationList>;
}

/** The inputs of a verification, which are the same for SEV-SNP evidence and TDX evidence. */
export interface EvidenceContext {
  /** The 64 bytes of report data for the document's own manifests (docs/protocol/attestation.md 3.2). */
  readonly expectedReportData: Uint8Array;
  /** The policy hashes (32 bytes each) of all coordinators in the expected manifest (4.3, 19.12 rule 11). */
  readonly coordinatorHashes: readonly Uint8Array[];
  readonly roots: TrustRoots;
  readonly collateral: CollateralSource;
  readonly now: Date;
}

/** States whether collateral was fetched during this verification or is a stored copy. */
export interface Obtained {
  /** When the stored copy was fetched (ms since 1970), and why no newer copy could be fetched. */
  readonly stored?: { readonly fetchedAt: number; readonly because: string } | undefined;
}

export interface RevocationList extends Obtained {
  /** The certificate revocation list in DER. */
  readonly crl: Uint8Array;
}

/** A JSON body exactly as received, and the PEM certificate chain of the key that signed the JSON body. */
export interface SignedCollateral extends Obtained {
  readonly body: string;
  readonly issuerChain: string;
}

type ReadList = Readonly<ReturnType<typeof readRevocationList>>;

/** The largest size in bytes that a check accepts for data from AMD or Intel. */
export const MAX_FETCHED_BYTES = 256 * 1024;

/** Reads a certificate revocation list. Throws evidence_malformed for invalid DER or above `maxBytes`. */
export function readRevocationList({ crl, stored }: RevocationList, maxBytes = MAX_FETCHED_BYTES) {
  if (crl.length > maxBytes) throw malformed('the CRL is too large');
  return { crl: parseCrl(crl), stored };
}

/** Reads a fetched certificate revocation list. Throws collateral_unavailable if the list is unreadable. */
export const readFetchedList = (list: RevocationList): ReadList =>
  asCollateral('the CRL', () => readRevocationList(list));

/** Reads a vendor's data. Errors of `read` become collateral_unavailable: the data are missing. */
export function asCollateral<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    throw new PrivatemodeError('collateral_unavailable', `${what} cannot be read: ${error.message}`);
  }
}

/** Returns `origin` for fetched data. For a stored copy, says when it was fetched and why it is used. */
export function howObtained({ stored }: Obtained, origin: string): string {
  if (stored === undefined) return origin;
  const at = new Date(stored.fetchedAt).toISOString();
  return `stored at ${at}, because it could not be fetched now (${stored.because})`;
}

/** Makes a finding that passes and says how the CRL was obtained. `age`: the CRL's age in seconds. */
export function obtained(list: ReadList, origin: string, now: Date): Finding {
  const { crlNumber, thisUpdate } = list.crl;
  const age = Math.max(0, Math.floor((now.getTime() - thisUpdate.getTime()) / 1000));
  const how = howObtained(list, origin);
  return { ...finding(true, `${how}; number ${crlNumber}, issued ${thisUpdate.toISOString()}`), age };
}

/** Passes if the CRL has been issued, and if it states a next update that is not yet due. */
export function currentList({ thisUpdate, nextUpdate }: Crl, now: Date): Finding {
  if (nextUpdate === undefined) return finding(false, 'it names no next update');
  return inForce(now, { notBefore: thisUpdate, notAfter: nextUpdate });
}
