/**
 * The verdict on the service as `privatemode-proxy verify --json` prints it (docs/verify.md), the name of
 * each outcome, and the error for a verdict that does not accept.
 */
import type { Check, Outcome } from '../attestation/check.ts';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { safeJson } from '../text.ts';

/** A verdict as JSON. Receipts name its hash; GET /verification shows it. New versions only add members. */
export interface Verdict {
  /**
   * `accepted`: the service is what the manifest says. With any other outcome, the service is not trusted.
   * `unavailable`: data that the verdict needs could not be fetched, and no check failed for another reason,
   * so nothing is proved either way.
   */
  readonly outcome: Outcome | 'unavailable';
  /** The processor that signed the evidence: AMD SEV-SNP or Intel TDX, or null if there was no evidence. */
  readonly tee: 'snp' | 'tdx' | null;
  /** SHA-256 of the text of the expected manifest, lower-case hex, or null if there was no manifest. */
  readonly manifestSha256: string | null;
  /** The moment with which all dates were compared, RFC 3339 in UTC. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so the verdict says nothing about real hardware. */
  readonly roots: 'vendor' | 'custom';
  /** Every check of the verification, in order, with what was expected and what was found. */
  readonly checks: readonly Omit<Check, 'detail'>[];
  /** What decided against the service; null exactly if the service was accepted. */
  readonly failure: {
    /** The check that failed, or null for another error, such as a host that does not respond. */
    readonly id: string | null;
    /** The code of the failure, one of the codes in `ERRORS`. */
    readonly code: string;
    /** What would have been right, or null if no check failed. */
    readonly expected: string | null;
    /** What was found instead, as text for a person. */
    readonly found: string;
    /** The section of docs/protocol/attestation.md that states the rule, or null if no check failed. */
    readonly source: string | null;
  } | null;
}

type Failure = NonNullable<Verdict['failure']>;

/** The text of a verdict, safe to show on a terminal. Receipts hold the SHA-256 of this text. */
export const verdictText = (verdict: Verdict): string => `${safeJson(verdict, 2)}\n`;

/** The error of each failure, with facts that the JSON of the verdict does not hold. */
const ERROR_OF = new WeakMap<Failure, PrivatemodeError>();

/** Makes the failure for an error. Without `check`, the error arose outside the checks. */
export function failureOf(error: PrivatemodeError, check?: Check): Failure {
  const { id = null, expected = null, found = error.message, source = null } = check ?? {};
  const failure = { id, code: error.code, expected, found, source };
  ERROR_OF.set(failure, error);
  return failure;
}

const NEWER_REMEDY =
  'Update this program to its latest version, which may understand this evidence; do not trust the remote before it does.';

/** The failure of the check that decided. Without `check`, no check failed, but none accepted either. */
export function failedCheck(check: Check | undefined): Failure {
  if (check === undefined)
    return failureOf(new PrivatemodeError('attestation_failed', 'the evidence was not accepted'));
  const { code = 'attestation_failed', detail } = check;
  const remedy = (detail?.clock && CLOCK_REMEDY) ?? (detail?.newer && NEWER_REMEDY);
  return failureOf(new PrivatemodeError(code, reasonOf(check), { remedy, detail }), check);
}

/**
 * The error that the verdict stands for, undefined if the verdict accepts. After reading a verdict from a
 * file, this error has only what the JSON says.
 */
export const errorOf = ({ failure }: Pick<Verdict, 'failure'>): PrivatemodeError | undefined =>
  failure === null
    ? undefined
    : (ERROR_OF.get(failure) ?? new PrivatemodeError(failure.code as ErrorCode, reasonOf(failure)));

/** A failure as the message of an error. The page that it cites is in the client library's package, too. */
export const reasonOf = ({ id, expected, found, source }: Omit<Failure, 'code'>): string =>
  id === null ? found : `${id}: expected ${expected}; found ${found} (docs/protocol/${source})`;

/** How a verification can end, with its exit code. */
export const OUTCOMES = {
  accepted: { exitCode: 0, meaning: 'every check that applies held' },
  rejected: { exitCode: 10, meaning: 'a check failed' },
  unsupported: { exitCode: 20, meaning: 'this version does not understand what the manifest says' },
  malformed: { exitCode: 30, meaning: 'a file or a response is malformed or cannot be read' },
  unavailable: { exitCode: 40, meaning: 'needed data could not be fetched; nothing is proved either way' },
} as const satisfies Record<Verdict['outcome'], object>;

/**
 * Exit code of evidence that was accepted under other roots than those of AMD and Intel, without the flag
 * --accept-custom-roots. A script that reads only the exit code must not take a simulator for real hardware.
 */
export const CUSTOM_ROOTS_EXIT_CODE = 35;

/** secret_exchange_failed means here that the response of the secret service cannot be read. */
const MALFORMED: readonly string[] = ['verify_input_invalid', 'evidence_malformed', 'secret_exchange_failed'];

/** The outcome of a verdict for an error outside the checks. */
export const outcomeOfError = (code: ErrorCode): Verdict['outcome'] =>
  MALFORMED.includes(code) ? 'malformed' : 'unavailable';
