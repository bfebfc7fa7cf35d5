/**
 * Checks as data. A check is a row: what it is called, where its rule comes from, what must hold, and a pure function
 * that judges a subject. Running rows gives a list of outcomes; nothing here decides anything.
 */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { printable } from './printable.ts';

/** One check of the evidence, with its outcome. A verdict is a list of these (docs/verification.md). */
export interface Check {
  /** Stable, e.g. `snp.report.signature`. */
  readonly id: string;
  /** `not-evaluated`: something it builds on is missing, because an earlier check failed. */
  readonly outcome: 'pass' | 'fail' | 'not-applicable' | 'not-evaluated';
  /** What was expected and what was found, as text for a person; never key material. */
  readonly expected: string;
  readonly found: string;
  /** Where the rule comes from, e.g. `attestation.md 8`. */
  readonly source: string;
  /** Of a revocation list that was obtained: seconds since its issuer signed it. */
  readonly age?: number;
  /** Of a failed check: the error it amounts to, e.g. `manifest_unsupported`, `collateral_unavailable`. */
  readonly code?: ErrorCode;
}

/** What documentation needs to know about a check. */
export interface CheckDescription {
  readonly id: string;
  readonly title: string;
  readonly source: string;
  /** What must hold, in words; a finding may say it more precisely. */
  readonly expected: string;
  /** The error that a failure amounts to; `attestation_failed` unless stated. */
  readonly code?: ErrorCode;
  /** May be `not-applicable` in an accepted verdict. Every other check must pass. */
  readonly conditional?: true;
}

export interface Finding {
  readonly outcome: 'pass' | 'fail' | 'not-applicable';
  readonly found: string;
  readonly expected?: string;
  readonly code?: ErrorCode;
  readonly age?: number;
}

/** A row of a table of checks over subjects of one kind. */
export interface CheckRow<Subject> extends CheckDescription {
  /**
   * Judges the subject; undefined where it lacks what the check builds on. May throw PrivatemodeError, which is a
   * failure with its code and words.
   */
  readonly judge: (subject: Subject) => Finding | undefined;
}

/** A finding that passes or fails. */
export function finding(holds: boolean, found: string, expected?: string): Finding {
  const outcome = holds ? 'pass' : 'fail';
  return expected === undefined ? { outcome, found } : { outcome, found, expected };
}

/** A finding for a check that the manifest or the evidence does not call for. */
export const notApplicable = (why: string): Finding => ({ outcome: 'not-applicable', found: why });

/** A failure with another code than its row's. */
export const failure = (found: string, code: ErrorCode): Finding => ({ outcome: 'fail', found, code });

/** The check that a finding about a described row makes. What was found may be the remote's own words. */
export function checkOf(row: CheckDescription, judged: Finding | undefined): Check {
  const { id, source } = row;
  if (judged === undefined) {
    return { id, source, outcome: 'not-evaluated', expected: row.expected, found: 'an earlier check failed' };
  }
  const { outcome, expected = row.expected, age } = judged;
  const found = printable(judged.found);
  if (outcome !== 'fail')
    return { id, source, outcome, expected, found, ...(age === undefined ? {} : { age }) };
  return { id, source, outcome, expected, found, code: judged.code ?? row.code ?? 'attestation_failed' };
}

/** Judges the subject by every row, in order. */
export function runChecks<Subject>(rows: readonly CheckRow<Subject>[], subject: Subject): Check[] {
  return rows.map((row) => checkOf(row, judgeSafely(row, subject)));
}

function judgeSafely<Subject>(row: CheckRow<Subject>, subject: Subject): Finding | undefined {
  try {
    return row.judge(subject);
  } catch (error) {
    if (error instanceof PrivatemodeError) return failure(error.message, error.code);
    throw error;
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
  const holds = (row: CheckDescription): boolean => {
    const outcome = outcomes.get(row.id);
    return outcome === 'pass' || (outcome === 'not-applicable' && row.conditional === true);
  };
  return rows.length > 0 && rows.every(holds) && checks.every(({ outcome }) => outcome !== 'fail');
}
