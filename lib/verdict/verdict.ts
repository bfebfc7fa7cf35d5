/**
 * The verdict on the service: what `privatemode-proxy verify --json` prints (docs/verify.md), how each
 * outcome is named, and the error that a verdict without trust amounts to.
 */
import type { Check, Outcome } from '../attestation/check.ts';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { safeJson } from '../text.ts';

/** Its own JSON: receipts point to its text, GET /verification and clients show it. It only ever grows. */
export interface Verdict {
  /**
   * `accepted`: the service is what the manifest says; with any other outcome it is not trusted.
   * `unavailable`: something that the verdict needs could not be fetched, and no check failed for another
   * reason, so nothing is proved either way.
   */
  readonly outcome: Outcome | 'unavailable';
  /** The processor that signed the evidence: AMD SEV-SNP or Intel TDX; null: there was no evidence. */
  readonly tee: 'snp' | 'tdx' | null;
  /** SHA-256, lower-case hex, of the text of the expected manifest; null: there was none. */
  readonly manifestSha256: string | null;
  /** RFC 3339 in UTC: the moment that all dates were compared with. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is said about real hardware. */
  readonly roots: 'vendor' | 'custom';
  /** Every check of the verification, in order, with what was expected and found. */
  readonly checks: readonly Omit<Check, 'detail'>[];
  /** What decided against the service; null exactly if it was accepted. */
  readonly failure: {
    /** The check that failed; null: an error outside the checks, such as a host that does not respond. */
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

type Failure = NonNullable<Verdict['failure']>;

/** The text of a verdict, safe to show on a terminal. Receipts hold its SHA-256. */
export const verdictText = (verdict: Verdict): string => `${safeJson(verdict, 2)}\n`;

/** By the failure of a verdict: its error, with what the JSON does not hold of it. */
const ERROR_OF = new WeakMap<Failure, PrivatemodeError>();

/** The failure that an error amounts to: by a check, else outside the checks. */
export function failureOf(error: PrivatemodeError, check?: Check): Failure {
  const { id = null, expected = null, found = error.message, source = null } = check ?? {};
  const failure = { id, code: error.code, expected, found, source };
  ERROR_OF.set(failure, error);
  return failure;
}

const NEWER_REMEDY =
  'Update this program to its latest version, which may understand this evidence; do not trust the remote before it does.';

/** The failure of a verdict that a check decided; undefined: that no check accepted anything either. */
export function failedCheck(check: Check | undefined): Failure {
  if (check === undefined)
    return failureOf(new PrivatemodeError('attestation_failed', 'the evidence was not accepted'));
  const { code = 'attestation_failed', detail } = check;
  const remedy = (detail?.clock && CLOCK_REMEDY) ?? (detail?.newer && NEWER_REMEDY);
  return failureOf(new PrivatemodeError(code, reasonOf(check), { remedy, detail }), check);
}

/**
 * The error that the verdict amounts to; undefined if it accepts. Of a verdict that was read from a file it
 * has only what the JSON says.
 */
export const errorOf = ({ failure }: Pick<Verdict, 'failure'>): PrivatemodeError | undefined =>
  failure === null
    ? undefined
    : (ERROR_OF.get(failure) ?? new PrivatemodeError(failure.code as ErrorCode, reasonOf(failure)));

/** The failure as the message of an error. The page that it cites is also in the client library's package. */
export const reasonOf = ({ id, expected, found, source }: Omit<Failure, 'code'>): string =>
  id === null ? found : `${id}: expected ${expected}; found ${found} (docs/protocol/${source})`;

/** How a verification can end, and the exit code that says so. */
export const OUTCOMES = {
  accepted: { exitCode: 0, meaning: 'every check that applies held' },
  rejected: { exitCode: 10, meaning: 'a check failed' },
  unsupported: { exitCode: 20, meaning: 'this version does not understand what the manifest says' },
  malformed: { exitCode: 30, meaning: 'a file or a response is malformed or cannot be read' },
  unavailable: { exitCode: 40, meaning: 'needed data could not be fetched; nothing is proved either way' },
} as const satisfies Record<Verdict['outcome'], object>;

/**
 * Exit code of evidence that was accepted under roots other than the vendors', without --accept-custom-roots.
 * A script that looks at nothing but the exit code must not take a simulator for protected hardware.
 */
export const CUSTOM_ROOTS_EXIT_CODE = 35;

/** Exit code for wrong flags, and for all else that prevents a verification. stderr then has `Error: …`. */
export const USAGE_EXIT_CODE = 1;

/** secret_exchange_failed: the response of the secret service cannot be read. */
const MALFORMED: readonly string[] = ['verify_input_invalid', 'evidence_malformed', 'secret_exchange_failed'];

/** The outcome of errors outside the checks. */
export const outcomeOfError = (code: ErrorCode): Verdict['outcome'] =>
  MALFORMED.includes(code) ? 'malformed' : 'unavailable';
