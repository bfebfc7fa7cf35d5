/**
 * Checks as data. A row states the id and title of a check, the source of its rule, what must hold, and how
 * the row judges a subject. `runChecks` turns rows into a list of outcomes. Only `allAccepted` decides.
 */
import { constantTimeEqual } from '#crypto';
import { type ErrorCode, type FailureDetail, PrivatemodeError } from '../errors.ts';
import { printable } from '../text.ts';

/** What documentation needs to know about a check. */
export interface CheckDescription {
  /** Stable, e.g. `snp.report.signature`. */
  readonly id: string;
  readonly title: string;
  /** Where the rule comes from: a section of docs/protocol/attestation.md. */
  readonly source: string;
  /** What must hold; a finding may say it more precisely. */
  readonly expected: string;
  /** The error code of a failure; `attestation_failed` unless stated. */
  readonly code?: ErrorCode;
  /** May be `not-applicable` in an accepted verdict. Every other check must pass. */
  readonly conditional?: true;
  /** For code outside this folder that treats some checks alike: `checksAbout` lists them. */
  readonly about?: CheckTopic;
}

/**
 * `nonce digest`: the check compares a digest over the nonce. The others are about a revocation list, TCB
 * info or QE identity. `collateral signature`: whether its vendor signed it. `collateral date`: the check
 * fails once it has expired. `collateral signer`: both, by the certificate of its signer.
 */
export type CheckTopic = 'nonce digest' | 'collateral signature' | 'collateral date' | 'collateral signer';

export interface Finding {
  readonly outcome: 'pass' | 'fail' | 'not-applicable';
  /** Text for a person, which no code parses; never key material. */
  readonly found: string;
  readonly expected?: string;
  /** Only in a failure: its error code, e.g. `manifest_unsupported`, `collateral_unavailable`. */
  readonly code?: ErrorCode | undefined;
  /** Only in a failure: facts that callers decide on beyond the error code. */
  readonly detail?: FailureDetail | undefined;
  /** Only for a revocation list that was obtained: seconds since its issuer signed it. */
  readonly age?: number | undefined;
}

/** One check of the evidence, with its outcome. A verdict is a list of these (docs/verification.md). */
export interface Check
  extends Pick<CheckDescription, 'id' | 'source' | 'expected'>,
    Pick<Finding, 'found' | 'code' | 'detail' | 'age'> {
  /** `not-evaluated`: an earlier check failed, so a value that this check needs is missing. */
  readonly outcome: Finding['outcome'] | 'not-evaluated';
}

/** The outcome of all checks of one piece of evidence. */
export type Outcome = 'accepted' | 'rejected' | 'unsupported' | 'malformed';

/**
 * Whether the hardware itself states what was judged (lib/attestation/authentic.ts). `unknown` counts as
 * `no`. It has four causes. The document lacks the certificate of the key that signed the report, and nothing
 * is fetched for this question. No root is pinned to which the key could chain. This program does not know
 * the report's version. The nonce has a wrong length.
 */
export type Authentic = 'yes' | 'no' | 'unknown';

/** A row of a table of checks over subjects of one kind. */
export interface CheckRow<Subject> extends CheckDescription {
  /**
   * Returns undefined if a value that the check needs is missing. A PrivatemodeError that it throws is a
   * failure with the error's code, message and detail.
   */
  readonly judge: (subject: Subject) => Finding | undefined | Promise<Finding | undefined>;
}

/** Makes the rows of a table from their descriptions by id. A row that names no source gets `source`. */
export function rowsFrom<Subject>(
  source: string,
  rows: Readonly<Record<string, Omit<CheckRow<Subject>, 'id' | 'source'> & { readonly source?: string }>>,
): readonly CheckRow<Subject>[] {
  return Object.entries(rows).map(([id, described]) => ({ id, source, ...described }));
}

/** A finding that passes or fails. */
export function finding(holds: boolean, found: string, expected?: string): Finding {
  const outcome = holds ? 'pass' : 'fail';
  return expected === undefined ? { outcome, found } : { outcome, found, expected };
}

/**
 * Passes if `found` is one of the byte strings that the manifest, the nonce or the hardware allow. If none is
 * allowed, nothing passes.
 */
export function oneOf(found: Uint8Array | undefined, allowed: readonly Uint8Array[]): Finding {
  const holds = found !== undefined && allowed.some((value) => constantTimeEqual(value, found));
  return finding(holds, hex(found ?? new Uint8Array()), allowed.map(hex).join(' or '));
}

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** A finding for a check that the manifest or the evidence does not call for. */
export const notApplicable = (why: string): Finding => ({ outcome: 'not-applicable', found: why });

/**
 * The result of reading or fetching a value that checks need: the value, or the error, which the check
 * responsible for the value reports. Undefined: nobody tried, because an earlier check failed.
 */
export type Settled<T> =
  | { readonly value: T; readonly error?: never }
  | { readonly value?: never; readonly error: PrivatemodeError }
  | undefined;

export function attempt<T>(read: () => T): Settled<T> {
  try {
    return { value: read() };
  } catch (error) {
    return { error: typed(error) };
  }
}

export const attemptAsync = <T>(read: () => Promise<T>): Promise<Settled<T>> =>
  read().then(
    (value) => ({ value }),
    (error: unknown) => ({ error: typed(error) }),
  );

/** Returns an error that has a code. Throws any other error on: it is a defect of ours. */
function typed(error: unknown): PrivatemodeError {
  if (error instanceof PrivatemodeError) return error;
  throw error;
}

class MissingValue extends Error {}

/** For use inside `judge`: returns the value, without which the check ends as `not-evaluated`. */
export function need<T>(result: Settled<T>): T {
  if (result === undefined || result.error !== undefined) throw new MissingValue();
  return result.value;
}

/**
 * Like `need`, for the one check that is responsible for the value: throws the error of the attempt, so that
 * this check reports it.
 */
export function demand<T>(result: Settled<T>): T {
  if (result?.error !== undefined) throw result.error;
  return need(result);
}

const NOT_EVALUATED: Omit<Finding, 'outcome'> & Pick<Check, 'outcome'> = {
  outcome: 'not-evaluated',
  found: 'an earlier check failed',
};

/**
 * Makes a check from the description of a row and a finding; without a finding, the check is `not-evaluated`.
 * Control characters in `found` are escaped, because the remote may have written the text.
 */
export function checkOf(described: CheckDescription, judged: Finding | undefined): Check {
  const { id, source } = described;
  const { outcome, found, expected = described.expected, code, detail, age } = judged ?? NOT_EVALUATED;
  const check = { id, source, outcome, expected, found: printable(found) };
  if (outcome === 'fail') {
    const failure = { ...check, code: code ?? described.code ?? 'attestation_failed' };
    return detail === undefined ? failure : { ...failure, detail };
  }
  return age === undefined ? check : { ...check, age };
}

/** Judges the subject by every row, one after the other. */
export async function runChecks<Subject>(
  rows: readonly CheckRow<Subject>[],
  subject: Subject,
): Promise<Check[]> {
  const checks: Check[] = [];
  for (const row of rows) checks.push(checkOf(row, await judgeSafely(row, subject)));
  return checks;
}

async function judgeSafely<Subject>({ judge }: CheckRow<Subject>, subject: Subject) {
  try {
    return await judge(subject);
  } catch (error) {
    if (error instanceof MissingValue) return undefined;
    const { message, code, detail } = typed(error);
    return { outcome: 'fail', found: message, code, detail } as const;
  }
}

export function firstFailure(checks: readonly Check[]): Check | undefined {
  return checks.find(({ outcome }) => outcome === 'fail');
}

/** Whether the check failed for sure: collateral that comes later cannot mend it. */
export const isRefuted = ({ outcome, code }: Check): boolean =>
  outcome === 'fail' && code !== 'collateral_unavailable';

/**
 * The check that decides against acceptance: the first that failed for sure, else the first that lacked
 * collateral, else the first that was not made. Whoever makes up evidence can leave out what has to be
 * fetched, and does not get "nothing is proved either way" for it.
 */
export const decisive = (checks: readonly Check[]): Check | undefined =>
  checks.find(isRefuted) ?? firstFailure(checks) ?? checks.find(({ outcome }) => outcome === 'not-evaluated');

/**
 * Whether these checks accept the evidence: every row was run, each one passed or, if it is conditional, did
 * not apply, and no check failed. An empty or incomplete list never accepts.
 */
export function allAccepted(rows: readonly CheckDescription[], checks: readonly Check[]): boolean {
  const outcomes = new Map(checks.map(({ id, outcome }) => [id, outcome]));
  const holds = ({ id, conditional }: CheckDescription): boolean =>
    outcomes.get(id) === 'pass' || (outcomes.get(id) === 'not-applicable' && conditional === true);
  return rows.length > 0 && rows.every(holds) && firstFailure(checks) === undefined;
}
