/**
 * Checks as data. A row says what a check is called, where its rule comes from, what must hold, and how it judges a
 * subject; running rows gives a list of outcomes. Nothing here decides anything but `allAccepted`.
 */
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
  /** The error that a failure amounts to; `attestation_failed` unless stated. */
  readonly code?: ErrorCode;
  /** May be `not-applicable` in an accepted verdict. Every other check must pass. */
  readonly conditional?: true;
}

export interface Finding {
  readonly outcome: 'pass' | 'fail' | 'not-applicable';
  /** As text for a person, which no code parses; never key material. */
  readonly found: string;
  readonly expected?: string;
  /** Of a failure: the error it amounts to, e.g. `manifest_unsupported`, `collateral_unavailable`. */
  readonly code?: ErrorCode | undefined;
  /** Of a failure: what code decides on beyond its code. */
  readonly detail?: FailureDetail | undefined;
  /** Of a revocation list that was obtained: seconds since its issuer signed it. */
  readonly age?: number | undefined;
}

/** One check of the evidence, with its outcome. A verdict is a list of these (docs/verification.md). */
export interface Check
  extends Pick<CheckDescription, 'id' | 'source' | 'expected'>,
    Pick<Finding, 'found' | 'code' | 'detail' | 'age'> {
  /** `not-evaluated`: something it builds on is missing, because an earlier check failed. */
  readonly outcome: Finding['outcome'] | 'not-evaluated';
}

/** The outcome of all checks of one piece of evidence. */
export type Outcome = 'accepted' | 'rejected' | 'unsupported' | 'malformed';

/**
 * Whether the hardware itself said what was judged: lib/attestation/authentic.ts. `unknown`: the key that signed the report is not in the
 * document, and nothing is fetched to find out, or no root is pinned that it could chain to; it counts as `no`.
 */
export type Authentic = 'yes' | 'no' | 'unknown';

/** A row of a table of checks over subjects of one kind. */
export interface CheckRow<Subject> extends CheckDescription {
  /** Undefined where what it builds on is missing. May throw PrivatemodeError: a failure with its code and message. */
  readonly judge: (subject: Subject) => Finding | undefined | Promise<Finding | undefined>;
}

/** The rows of a table by id; a rule comes from `source` unless its row names another section. */
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

/** A finding for a check that the manifest or the evidence does not call for. */
export const notApplicable = (why: string): Finding => ({ outcome: 'not-applicable', found: why });

/**
 * The result of reading or fetching something that checks build on: the value, or the error that the check responsible
 * for it reports. Undefined: not tried, because an earlier check failed.
 */
export type Attempt<T> =
  | { readonly value: T; readonly error?: never }
  | { readonly value?: never; readonly error: PrivatemodeError }
  | undefined;

export function attempt<T>(read: () => T): Attempt<T> {
  try {
    return { value: read() };
  } catch (error) {
    return { error: typed(error) };
  }
}

export const attemptAsync = <T>(read: () => Promise<T>): Promise<Attempt<T>> =>
  read().then(
    (value) => ({ value }),
    (error: unknown) => ({ error: typed(error) }),
  );

/** Anything but an error with a code is a defect of ours: it is thrown on. */
function typed(error: unknown): PrivatemodeError {
  if (error instanceof PrivatemodeError) return error;
  throw error;
}

class MissingValue extends Error {}

/** Inside a judgement: the value that the check builds on. Without it, the check ends as not evaluated. */
export function need<T>(result: Attempt<T>): T {
  if (result === undefined || result.error !== undefined) throw new MissingValue();
  return result.value;
}

/** Like `need`, for the one check that is responsible for the value: it throws the error of the attempt. */
export function demand<T>(result: Attempt<T>): T {
  if (result?.error !== undefined) throw result.error;
  return need(result);
}

const NOT_EVALUATED: Omit<Finding, 'outcome'> & Pick<Check, 'outcome'> = {
  outcome: 'not-evaluated',
  found: 'an earlier check failed',
};

/** The check that a finding about a described row makes. What was found may be text of the remote. */
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

/**
 * Whether these checks accept: every described row was run, and each one passed or, where it is conditional, did not
 * apply. An empty or incomplete list never accepts.
 */
export function allAccepted(rows: readonly CheckDescription[], checks: readonly Check[]): boolean {
  const outcomes = new Map(checks.map(({ id, outcome }) => [id, outcome]));
  const holds = ({ id, conditional }: CheckDescription): boolean =>
    outcomes.get(id) === 'pass' || (outcomes.get(id) === 'not-applicable' && conditional === true);
  return rows.length > 0 && rows.every(holds) && firstFailure(checks) === undefined;
}
