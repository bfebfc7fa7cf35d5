/**
 * The shape of a verdict: as `judge` and the session make it (`Verdict`), and as data for programs
 * (`VerdictReport`, docs/verify.md), which only ever grows.
 */
import type { Check, Outcome } from '../attestation/check.ts';
import type { PrivatemodeError } from '../errors.ts';
import { safeJson } from '../text.ts';

/**
 * `unavailable`: only of a live service, if something that the verdict needs could not be fetched, and no
 * check failed for another reason.
 */
export type VerificationOutcome = Outcome | 'unavailable';

/** How the service, or a saved exchange with it, was judged. */
export interface Verdict {
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
  /** The check or the other error that decided against acceptance. Undefined exactly if accepted. */
  readonly failure: { readonly check: Check | undefined; readonly error: PrivatemodeError } | undefined;
  /** The manifest that was expected, byte for byte; undefined where there was none. Not in the JSON. */
  readonly manifest: Uint8Array | undefined;
  /**
   * If only expired collateral keeps saved evidence from being accepted: when that collateral ran out. Not in
   * the JSON.
   */
  readonly outlived?: Date | undefined;
}

/**
 * A check as data. Receipts point to the text of a verdict, so this leaves out `detail`, which only this
 * program uses.
 */
export type CheckReport = Omit<Check, 'detail'>;

/**
 * The verdict as data: `privatemode-proxy verify --json` prints it, receipts point to it, GET /verification
 * and clients show it.
 */
export interface VerdictReport {
  /**
   * `accepted`: the service is what the manifest says; with any other outcome it is not trusted.
   * `unavailable`: something that the verdict needs could not be fetched, and no check failed for another
   * reason, so nothing is proved either way.
   */
  readonly outcome: VerificationOutcome;
  /**
   * The technology of the processor that signed the evidence: AMD SEV-SNP or Intel TDX; null: there was no
   * evidence.
   */
  readonly tee: 'snp' | 'tdx' | null;
  /**
   * The manifest that the service was checked against: SHA-256 of its text in lower-case hex; null: there was
   * none.
   */
  readonly manifestSha256: string | null;
  /** RFC 3339 in UTC: the moment that all dates were compared with. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is said about real hardware. */
  readonly roots: 'vendor' | 'custom';
  /** Every check of the verification, in order, with what was expected and found. */
  readonly checks: readonly CheckReport[];
  /** What decided against the service; null exactly if it was accepted. */
  readonly failure: {
    /**
     * The check that failed; null: no check failed, but there was an error, such as a host that does not
     * respond.
     */
    readonly id: string | null;
    /** The code of the error that the failure amounts to, as in `ERRORS`. */
    readonly code: string;
    /** What would have been right; null without a check. */
    readonly expected: string | null;
    /** What was found instead, for a person. */
    readonly found: string;
    /** Where the rule comes from: a section of docs/protocol/attestation.md; null without a check. */
    readonly source: string | null;
  } | null;
}

/**
 * The failure as the message of an error. The page that it cites is also in the package of the client
 * library.
 */
export function reasonOf(
  failure: Pick<NonNullable<VerdictReport['failure']>, 'id' | 'expected' | 'found' | 'source'>,
): string {
  const { id, expected, found, source } = failure;
  return id === null ? found : `${id}: expected ${expected}; found ${found} (docs/protocol/${source})`;
}

/** The verdict as data, with its members in the order of the documentation. */
export function verdictReport(verdict: Verdict): VerdictReport {
  const { outcome, tee = null, manifestSha256 = null, at, roots, checks, failure } = verdict;
  return {
    outcome,
    tee,
    manifestSha256,
    at: at.toISOString(),
    roots,
    checks: checks.map(checkReport),
    failure: failure === undefined ? null : failureReport(failure),
  };
}

const checkReport = ({ id, outcome, expected, found, source, age, code }: Check): CheckReport => ({
  id,
  outcome,
  expected,
  found,
  source,
  age,
  code,
});

function failureReport({ check, error }: NonNullable<Verdict['failure']>): VerdictReport['failure'] {
  const { id = null, expected = null, found = error.message, source = null } = check ?? {};
  return { id, code: error.code, expected, found, source };
}

/**
 * The text of a verdict, as receipts refer to it: they hold its SHA-256, and it is stored under that name.
 */
export const verdictText = (verdict: Verdict): string =>
  `${JSON.stringify(verdictReport(verdict), undefined, 2)}\n`;

/** The text that `verify --json` prints. */
export const renderJson = (verdict: Verdict): string => `${safeJson(verdictReport(verdict), 2)}\n`;
