/**
 * The verdict on the service: what `privatemode-proxy verify --json` prints (docs/verify.md), how each
 * outcome is named, and the error that a verdict without trust amounts to.
 */
import type { Check, Outcome } from '../attestation/check.ts';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { safeJson } from '../text.ts';

export type VerificationOutcome = Outcome | 'unavailable';

/** Its own JSON: receipts point to its text, GET /verification and clients show it. It only ever grows. */
export interface Verdict {
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
  readonly checks: readonly Omit<Check, 'detail'>[];
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

/** The text of a verdict, safe to show on a terminal. Receipts hold its SHA-256. */
export const verdictText = (verdict: Verdict): string => `${safeJson(verdict, 2)}\n`;

/** By the failure of a verdict: its error, with what the JSON does not hold of it. */
const ERROR_OF = new WeakMap<NonNullable<Verdict['failure']>, PrivatemodeError>();

/** The failure of a verdict that an error outside the checks ended. */
export function failureOf(error: PrivatemodeError): NonNullable<Verdict['failure']> {
  const failure = { id: null, code: error.code, expected: null, found: error.message, source: null };
  ERROR_OF.set(failure, error);
  return failure;
}

const NEWER_REMEDY =
  'Update this program to its latest version, which may understand this evidence; do not trust the remote before it does.';

/** The failure of a verdict that a check decided. */
export function failedCheck(check: Check): NonNullable<Verdict['failure']> {
  const { id, code = 'attestation_failed', expected, found, source, detail } = check;
  const failure = { id, code, expected, found, source };
  const remedy = (detail?.clock && CLOCK_REMEDY) ?? (detail?.newer && NEWER_REMEDY);
  ERROR_OF.set(failure, new PrivatemodeError(code, reasonOf(failure), { remedy, detail }));
  return failure;
}

/**
 * The error that the verdict amounts to, the same one each time; undefined if it accepts. A verdict that was
 * read from a file has only what its JSON says.
 */
export function errorOf({ failure }: Pick<Verdict, 'failure'>): PrivatemodeError | undefined {
  if (failure === null) return undefined;
  const known = ERROR_OF.get(failure) ?? new PrivatemodeError(failure.code as ErrorCode, reasonOf(failure));
  ERROR_OF.set(failure, known);
  return known;
}

/**
 * The failure as the message of an error. The page that it cites is also in the package of the client
 * library.
 */
export const reasonOf = ({ id, expected, found, source }: NonNullable<Verdict['failure']>): string =>
  id === null ? found : `${id}: expected ${expected}; found ${found} (docs/protocol/${source})`;

/** How a verification can end, and the exit code that says so. */
export const OUTCOMES = {
  accepted: { exitCode: 0, word: 'ACCEPTED', meaning: 'every check that applies held' },
  rejected: { exitCode: 10, word: 'REJECTED', meaning: 'a check failed' },
  unsupported: {
    exitCode: 20,
    word: 'UNSUPPORTED',
    meaning: 'the manifest says something that this version does not understand',
  },
  malformed: {
    exitCode: 30,
    word: 'MALFORMED',
    meaning: 'a file or a response is malformed or cannot be read',
  },
  unavailable: {
    exitCode: 40,
    word: 'NO VERDICT',
    meaning: 'the service, its manifest or a collateral host gave no usable response',
  },
} as const satisfies Record<VerificationOutcome, object>;

/**
 * Exit code of evidence that was accepted under roots other than the vendors', without --accept-custom-roots.
 * A script that looks at nothing but the exit code must not take a simulator for protected hardware.
 */
export const CUSTOM_ROOTS_EXIT_CODE = 35;

/**
 * Exit code for wrong flags, and for everything else that prevents a verification. stderr then has `Error:
 * …`.
 */
export const USAGE_EXIT_CODE = 1;

/** secret_exchange_failed: the response of the secret service cannot be read. */
const MALFORMED: readonly ErrorCode[] = [
  'verify_input_invalid',
  'evidence_malformed',
  'secret_exchange_failed',
];

/** The outcome of errors outside the checks. */
export const outcomeOfError = (code: ErrorCode): VerificationOutcome =>
  MALFORMED.includes(code) ? 'malformed' : 'unavailable';
