/**
 * The verdict on the service, as `privatemode-proxy verify --json` prints it (docs/verify.md). This file also
 * has the meaning of each outcome, and the error for a verdict that does not accept.
 */
import type { Check, Outcome } from '../attestation/check.ts';
import { CLOCK_REMEDY, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { safeJson } from '../text.ts';

/** A verdict as JSON. Receipts hash the JSON, GET /verification shows it. New versions only add members. */
export interface Verdict {
  /**
   * `accepted`: the service matches the manifest. With any outcome but `accepted`, the service is not
   * trusted. `unavailable`: needed data could not be fetched and no check failed for another reason, so
   * nothing is proved for or against the service.
   */
  readonly outcome: Outcome | 'unavailable';
  /** The kind of processor that signed the evidence: AMD SEV-SNP, Intel TDX, or null without evidence. */
  readonly tee: 'snp' | 'tdx' | null;
  /** SHA-256 of the expected manifest's bytes in lower-case hex, or null if there was no manifest. */
  readonly manifestSha256: string | null;
  /** The time with which all dates were compared, in RFC 3339 and UTC. */
  readonly at: string;
  /** `custom`: the roots are not those of AMD and Intel, so nothing is proved about real hardware. */
  readonly roots: 'vendor' | 'custom';
  /** Every check of the verification, in order, with the expected and the found values. */
  readonly checks: readonly Omit<Check, 'detail'>[];
  /** What decided against the service, or null if the service was accepted. */
  readonly failure: {
    /** The id of the failed check, or null for an error outside the checks, such as an unreachable host. */
    readonly id: string | null;
    /** The error code of the failure, which is a key of `ERRORS`. */
    readonly code: string;
    /** The value that would have passed the check, or null if no check failed. */
    readonly expected: string | null;
    /** What was found in place of the expected value, as text for a person. */
    readonly found: string;
    /** The section of docs/protocol/attestation.md with the rule of the check, or null if no check failed. */
    readonly source: string | null;
  } | null;
}

type Failure = NonNullable<Verdict['failure']>;

/** The text of a verdict, which is safe on a terminal. Receipts hold the SHA-256 of this text. */
export const verdictText = (verdict: Verdict): string => `${safeJson(verdict, 2)}\n`;

/** The error of each failure, with facts that are not in the JSON of the verdict. */
const ERROR_OF = new WeakMap<Failure, PrivatemodeError>();

/** Makes a failure from an error. If `check` is undefined, the error arose outside the checks. */
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
 * The error of the verdict, or undefined if the verdict accepts. For a verdict that was read from a file,
 * this error has only the facts in the JSON.
 */
export const errorOf = ({ failure }: Pick<Verdict, 'failure'>): PrivatemodeError | undefined =>
  failure === null
    ? undefined
    : (ERROR_OF.get(failure) ?? new PrivatemodeError(failure.code as ErrorCode, reasonOf(failure)));

/** The error message for a failure. The message cites a page that the client library's package has, too. */
export const reasonOf = ({ id, expected, found, source }: Omit<Failure, 'code'>): string =>
  id === null ? found : `${id}: expected ${expected}; found ${found} (docs/protocol/${source})`;

/** The possible outcomes of a verification, with the exit code of each outcome. */
export const OUTCOMES = {
  accepted: { exitCode: 0, meaning: 'every check that applies held' },
  rejected: { exitCode: 10, meaning: 'a check failed' },
  unsupported: { exitCode: 20, meaning: 'this version does not understand what the manifest says' },
  malformed: { exitCode: 30, meaning: 'a file or a response is malformed or cannot be read' },
  unavailable: { exitCode: 40, meaning: 'needed data could not be fetched; nothing is proved either way' },
} as const satisfies Record<Verdict['outcome'], object>;

/**
 * Exit code for evidence accepted under roots other than those of AMD and Intel, without the flag
 * --accept-custom-roots. A script that reads only the exit code must not see a simulator as real hardware.
 */
export const CUSTOM_ROOTS_EXIT_CODE = 35;

/** In this file, secret_exchange_failed means that the response of the secret service cannot be read. */
const MALFORMED: readonly string[] = ['verify_input_invalid', 'evidence_malformed', 'secret_exchange_failed'];

/** The outcome of a verdict after an error that arose outside the checks. */
export const outcomeOfError = (code: ErrorCode): Verdict['outcome'] =>
  MALFORMED.includes(code) ? 'malformed' : 'unavailable';
