/** The shape of a verdict: as it was found, and as data for programs (docs/verification.md). */
import type { Check, Outcome } from '../attestation/check.ts';
import type { PrivatemodeError } from '../errors.ts';

/** `unavailable`: live only, where something that the verdict needs could not be fetched. */
export type VerificationOutcome = Outcome | 'unavailable';

/** How the service, or a saved exchange with it, was judged. */
export interface Judgement {
  readonly outcome: VerificationOutcome;
  readonly tee: 'snp' | 'tdx' | undefined;
  /** Lower-case hex; undefined where there was no manifest to judge by. */
  readonly manifestSha256: string | undefined;
  /** The moment that all dates were compared with. */
  readonly at: Date;
  /** Whether the built-in roots of AMD and Intel were trusted, or others. */
  readonly roots: 'vendor' | 'custom';
  /** Every check, in order. */
  readonly checks: readonly Check[];
  /** The check or the other error that decided against acceptance. */
  readonly failure: { readonly check: Check | undefined; readonly error: PrivatemodeError } | undefined;
  /** Of saved evidence that only its collateral keeps from being accepted: when that ran out. Not in the JSON. */
  readonly outlived?: Date | undefined;
}

/** A check as data. Its text is what receipts point to, so it has no member for this program alone. */
export type CheckReport = Omit<Check, 'detail'>;

/** The same as data: `privatemode-proxy verify --json` prints it, receipts point to it, GET /verification and clients show it. */
export interface VerdictReport {
  readonly outcome: VerificationOutcome;
  readonly tee: 'snp' | 'tdx' | null;
  /** Lower-case hex. */
  readonly manifestSha256: string | null;
  /** RFC 3339 in UTC: the moment that all dates were compared with. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is said about real hardware. */
  readonly roots: 'vendor' | 'custom';
  readonly checks: readonly CheckReport[];
  /** Null exactly if accepted. */
  readonly failure: {
    readonly id: string | null;
    readonly code: string;
    readonly expected: string | null;
    readonly found: string;
    readonly source: string | null;
  } | null;
}

/** What failed, as the message of an error; the page that it cites is also in the package of the client library. */
export function reasonOf(failure: Omit<NonNullable<VerdictReport['failure']>, 'code'>): string {
  const { id, expected, found, source } = failure;
  return id === null ? found : `${id}: expected ${expected}; found ${found} (docs/protocol/${source})`;
}
