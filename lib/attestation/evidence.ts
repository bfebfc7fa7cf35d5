/**
 * The interface between verify-evidence.ts and the evidence formats: what it gives to them, and what each of
 * them (`snp/verify-snp.ts`, `tdx/verify-tdx.ts`) offers.
 */
import type { Authentic, Check, CheckDescription } from './check.ts';
import type { CollateralSource } from './collateral.ts';
import type { Product } from './snp/product.ts';

/** The hardware roots to trust; PEM. The vendors' are in roots/production.ts. */
export interface TrustRoots {
  readonly snp: Readonly<Partial<Record<Product, { readonly ark: string; readonly ask: string }>>>;
  readonly tdx: { readonly root: string } | undefined;
}

/** The inputs of a verification that are the same for every reference value. */
export interface EvidenceContext {
  /** 64 bytes (docs/protocol/attestation.md 3.2). */
  readonly expectedReportData: Uint8Array;
  /**
   * 32 bytes each: the policy hashes of the coordinator entries of the manifest (docs/protocol/attestation.md
   * 4.3, 19.12 rule 11).
   */
  readonly coordinatorHashes: readonly Uint8Array[];
  readonly roots: TrustRoots;
  /**
   * A format may ask the same question for each reference value: verify-evidence.ts remembers the results of
   * one verification.
   */
  readonly collateral: CollateralSource;
  readonly now: Date;
}

export interface EvidenceFormat<Message, Entry> {
  /** Reads raw_attestation_doc; throws evidence_malformed when it is not this format's message. */
  readonly decode: (raw: Uint8Array) => Message;
  /** Every check that `verify` can report, in order; docs/checks.md lists them. */
  readonly rows: readonly CheckDescription[];
  /**
   * Judges the evidence against one reference value. Returns one check per row, in the order of `rows`. A
   * defect of the evidence, or a failed fetch, is a failed check; the promise rejects only for defects of our
   * own.
   */
  readonly verify: (message: Message, entry: Entry, context: EvidenceContext) => Promise<readonly Check[]>;
  /**
   * Whether the hardware signed the message with the expected report data, under any root of `context`
   * (lib/attestation/authentic.ts). Fetches nothing.
   */
  readonly authentic: (message: Message, context: EvidenceContext) => Promise<Authentic>;
}

/**
 * Lets other work run between two heavy steps, so that a verification never holds the event loop for long.
 * Waits for one macrotask: setImmediate if the runtime has it, else setTimeout.
 */
export function breathe(): Promise<void> {
  return new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve);
    else setTimeout(resolve, 0);
  });
}
