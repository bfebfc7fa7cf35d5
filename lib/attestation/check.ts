/**
 * Checks as data. A row states the id and title of a check, the source of its rule, what must hold, and how
 * the row judges a subject. `Checks` turns rows into outcomes, stage by stage. Only `allAccepted` decides.
 */
import { constantTimeEqual, sha256 } from '#crypto';
import { nextTurn } from '../clock.ts';
import { type ErrorCode, type FailureDetail, PrivatemodeError } from '../errors.ts';
import { printable } from '../text.ts';

/** What documentation needs to know about a check. */
export interface CheckDescription {
  /** Stable, e.g. `snp.report.signature`. */
  readonly id: string;
  readonly title: string;
  /** A section of docs/protocol/attestation.md. */
  readonly source: string;
  /** What must hold; a finding may say it more precisely. */
  readonly expected: string;
  /** The error code of a failure; `attestation_failed` unless stated. */
  readonly code?: ErrorCode;
  /** May be `not-applicable` in an accepted verdict. Every other check must pass. */
  readonly conditional?: true;
}

export interface Finding {
  readonly outcome: 'pass' | 'fail' | 'not-applicable';
  /** Text for a person, which no code parses; never key material. */
  readonly found: string;
  readonly expected?: string;
  /** Only in a failure. */
  readonly code?: ErrorCode | undefined;
  /** Only in a failure: facts that callers decide on beyond the error code. */
  readonly detail?: FailureDetail | undefined;
  /** Only for a revocation list that was obtained: seconds since its issuer signed it. */
  readonly age?: number | undefined;
}

/** One check of the evidence, with its outcome. A verdict is a list of these (docs/security.md). */
export interface Check
  extends Pick<CheckDescription, 'id' | 'source' | 'expected'>,
    Pick<Finding, 'found' | 'code' | 'detail' | 'age'> {
  /** `not-evaluated`: an earlier check failed. */
  readonly outcome: Finding['outcome'] | 'not-evaluated';
}

/** The outcome of all checks of one piece of evidence. */
export type Outcome = 'accepted' | 'rejected' | 'unsupported' | 'malformed';

/** A row of a table of checks over subjects of one kind. */
export interface CheckRow<Subject> extends CheckDescription {
  /** A PrivatemodeError that it throws is a failure with the error's code, message and detail. */
  readonly judge: (subject: Subject) => Finding | Promise<Finding>;
}

export type Rows<Subject> = readonly CheckRow<Subject>[];

/** A row. `section`: of docs/protocol/attestation.md, where its rule is; `expected`: what must hold. */
export const row = <Subject>(
  id: string,
  title: string,
  section: string,
  rest: Omit<CheckRow<Subject>, 'id' | 'title' | 'source'>,
): CheckRow<Subject> => ({ id, title, source: `attestation.md ${section}`, ...rest });

/** A finding that passes or fails. */
export function finding(holds: boolean, found: string, expected?: string): Finding {
  const outcome = holds ? 'pass' : 'fail';
  return expected === undefined ? { outcome, found } : { outcome, found, expected };
}

/** Passes if `found` is one of the byte strings that are allowed; if none is allowed, nothing passes. */
export function oneOf(found: Uint8Array | undefined, allowed: readonly Uint8Array[]): Finding {
  const holds = found !== undefined && allowed.some((value) => constantTimeEqual(value, found));
  return finding(holds, hex(found ?? new Uint8Array()), allowed.map(hex).join(' or '));
}

/** Lower-case, as `sha256Hex`, which gives the digest of the bytes. */
export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
export const sha256Hex = (bytes: Uint8Array): string => hex(sha256(bytes));

/** A finding for a check that the manifest or the evidence does not call for. */
export const notApplicable = (why: string): Finding => ({ outcome: 'not-applicable', found: why });

/** The value that `read` returns, or the PrivatemodeError that it throws; any other error is thrown on. */
export function attempt<T>(read: () => T): { readonly value?: T; readonly error?: PrivatemodeError } {
  try {
    return { value: read() };
  } catch (error) {
    if (error instanceof PrivatemodeError) return { error };
    throw error;
  }
}

/**
 * Makes a check from the description of a row and a finding; without a finding, the check is `not-evaluated`.
 * Control characters in `found` are escaped, because the remote may have written the text.
 */
export function checkOf(row: CheckDescription, judged: Finding | undefined): Check {
  const { id, source, expected } = row;
  if (judged === undefined)
    return { id, source, expected, outcome: 'not-evaluated', found: 'an earlier check failed' };
  const check = { id, source, expected, ...judged, found: printable(judged.found) };
  return check.outcome === 'fail'
    ? { ...check, code: check.code ?? row.code ?? 'attestation_failed' }
    : check;
}

/** The failure that a PrivatemodeError states. Any other error is a defect of ours, and thrown on. */
function failureBy(error: unknown): Finding {
  if (!(error instanceof PrivatemodeError)) throw error;
  const { message, code, detail } = error;
  return { ...finding(false, message), code, detail };
}

/**
 * The checks of one verification, by id. It goes by stages: all rows of a stage are judged, and if one of
 * them fails, no further stage begins. Other work can run before each step.
 */
export class Checks {
  readonly #rows: readonly CheckDescription[];
  readonly #made = new Map<string, Check>();

  /** `rows`: every check that may be made. */
  constructor(rows: readonly CheckDescription[]) {
    this.#rows = rows;
  }

  /** Judges the subject by all of these rows, one after the other. Returns whether none of them failed. */
  async run<Subject>(rows: readonly CheckRow<Subject>[], subject: Subject): Promise<boolean> {
    await nextTurn();
    for (const row of rows) {
      const judging = async (): Promise<Finding> => row.judge(subject);
      this.#made.set(row.id, checkOf(row, await judging().catch(failureBy)));
    }
    return !rows.some(({ id }) => this.#made.get(id)?.outcome === 'fail');
  }

  /** Reads or fetches a value. If that fails, the row `id` answers for it, and the value is undefined. */
  async read<T>(id: string, read: () => T | Promise<T>): Promise<T | undefined> {
    await nextTurn();
    try {
      return await read();
    } catch (error) {
      this.refuse(id, failureBy(error));
      return undefined;
    }
  }

  /** Lets the row `id` fail, whatever it found before. */
  refuse(id: string, failure: Finding): void {
    const row = this.#rows.find((each) => each.id === id);
    if (row === undefined) throw new Error(`no check ${id}`);
    this.#made.set(id, checkOf(row, failure));
  }

  /**
   * Judges by each of the entries until one holds, which it returns. Keeps the checks of that one, else those
   * of the closest one.
   */
  async tryEach<Entry>(
    entries: readonly Entry[],
    judge: (checks: Checks, entry: Entry) => Promise<boolean>,
  ): Promise<Entry | undefined> {
    let kept: Checks | undefined;
    let accepting: Entry | undefined;
    for (const entry of entries) {
      const checks = new Checks(this.#rows);
      if (await judge(checks, entry)) accepting = entry;
      if (accepting || kept === undefined || checks.#closeness() > kept.#closeness()) kept = checks;
      if (accepting) break;
    }
    if (kept !== undefined) for (const [id, check] of kept.#made) this.#made.set(id, check);
    return accepting;
  }

  /** One check for each of these rows, in their order; those that were not made are `not-evaluated`. */
  of(rows: readonly CheckDescription[]): readonly Check[] {
    return rows.map((row) => this.#made.get(row.id) ?? checkOf(row, undefined));
  }

  /** How many checks hold. Who lacks only collateral is closer than all others: it may be the right entry. */
  #closeness(): number {
    const checks = [...this.#made.values()];
    const held = checks.filter(({ outcome }) => outcome !== 'fail').length;
    return checks.some(isRefuted) ? held : held + this.#rows.length;
  }
}

export function firstFailure(checks: readonly Check[]): Check | undefined {
  return checks.find(({ outcome }) => outcome === 'fail');
}

/** Whether the check failed for sure: collateral that comes later cannot mend it. */
const isRefuted = ({ outcome, code }: Check): boolean =>
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
