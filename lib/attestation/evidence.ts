/**
 * What verify.ts hands to the evidence formats, and what each of them offers. `snp/verify.ts` exports
 * `SNP: EvidenceFormat<SnpAttestation, SnpReferenceValues>`, `tdx/verify.ts` its counterpart `TDX` with the quote
 * message and TdxReferenceValues.
 */
import type { Check, CheckDescription } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import type { TrustRoots } from './trust-roots.ts';

/** What does not depend on the reference value that is being tried. */
export interface EvidenceContext {
  /** 64 bytes (attestation.md 3.2). */
  readonly expectedReportData: Uint8Array;
  /** 32 bytes each: the policy hashes of the coordinator entries of the manifest (attestation.md 4.3, 19.12 rule 11). */
  readonly coordinatorHashes: readonly Uint8Array[];
  readonly roots: TrustRoots;
  /** May be asked the same question once per reference value: verify.ts remembers the answers of one verification. */
  readonly collateral: CollateralSource;
  readonly now: Date;
}

export interface EvidenceFormat<Message, Entry> {
  /** Reads raw_attestation_doc; throws evidence_malformed when it is not this format's message. */
  readonly decode: (raw: Uint8Array) => Message;
  /** Every check that `verify` can report, in order; the table in docs/verification.md is made from it. */
  readonly rows: readonly CheckDescription[];
  /**
   * Judges the evidence against one reference value. Returns one check per row, in the order of `rows`. Rejects only
   * for defects of our own: whatever is wrong with the evidence, or cannot be fetched, is a failed check.
   */
  readonly verify: (message: Message, entry: Entry, context: EvidenceContext) => Promise<readonly Check[]>;
}

/**
 * Lets other work run between two heavy steps: a macrotask, so that the event loop is never held for long
 * by a verification. Portable: setImmediate where there is one, else setTimeout.
 */
export function breathe(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve);
    else setTimeout(resolve, 0);
  });
}
