/**
 * Checks as data. A row describes one check: its id and title, the section that states its rule, what must
 * hold, and how it is judged. `Checks` runs rows stage by stage. Only `allAccepted` decides about acceptance.
 */
import { constantTimeEqual, sha256 } from '#crypto';
import { nextTurn } from '../clock.ts';
import { type ErrorCode, type FailureDetail, PrivatemodeError } from '../errors.ts';
import { printable } from '../text.ts';

/** The description of a check that documentation shows. */
export interface CheckDescription {
  /** The id of a check, such as `snp.report.signature`, which never changes. */
  readonly id: string;
  readonly title: string;
  /** The section of docs/protocol/attestation.md that states the rule. */
  readonly source: string;
  /** What must hold for the check to pass. A finding may replace this text by a more precise one. */
  readonly expected: string;
  /** The error code of a failure. Without this member, the code is `attestation_failed`. */
  readonly code?: ErrorCode;
  /** Whether the check may be `not-applicable` in an accepted verdict. Every other check must pass. */
  readonly conditional?: true;
}

export interface Finding {
  readonly outcome: 'pass' | 'fail' | 'not-applicable';
  /** What was found, as text for a person. No code parses it, and it never contains key material. */
  readonly found: string;
  readonly expected?: string;
  /** The error code of a failure. A finding that passes has none. */
  readonly code?: ErrorCode | undefined;
  /** Facts about a failure, beyond its error code, by which callers decide. */
  readonly detail?: FailureDetail | undefined;
  /** The age of a revocation list: seconds since its issuer signed it. Other findings have no age. */
  readonly age?: number | undefined;
}

/** One check of the evidence, with its outcome. A verdict is a list of checks (docs/security.md). */
export interface Check
  extends Pick<CheckDescription, 'id' | 'source' | 'expected'>,
    Pick<Finding, 'found' | 'code' | 'detail' | 'age'> {
  /** `not-evaluated` means that an earlier check failed, so this check was not made. */
  readonly outcome: Finding['outcome'] | 'not-evaluated';
}

/** The outcome of all checks of one piece of evidence together. */
export type Outcome = 'accepted' | 'rejected' | 'unsupported' | 'malformed';

/** A row of a table of checks. All rows of one table judge the same type of subject. */
export interface CheckRow<Subject> extends CheckDescription {
  /** A PrivatemodeError that `judge` throws makes the check fail with its code, message and detail. */
  readonly judge: (subject: Subject) => Finding | Promise<Finding>;
}

export type Rows<Subject> = readonly CheckRow<Subject>[];

/** Makes a row. `section`: the section of docs/protocol/attestation.md that states the rule. */
export const row = <Subject>(
  id: string,
  title: string,
  section: string,
  rest: Omit<CheckRow<Subject>, 'id' | 'title' | 'source'>,
): CheckRow<Subject> => ({ id, title, source: `attestation.md ${section}`, ...rest });

/** Makes a finding, which passes if `holds` is true and fails otherwise. */
export function finding(holds: boolean, found: string, expected?: string): Finding {
  const outcome = holds ? 'pass' : 'fail';
  return expected === undefined ? { outcome, found } : { outcome, found, expected };
}

/** Passes if `found` is one of the allowed byte strings. If the list `allowed` is empty, nothing passes. */
export function oneOf(found: Uint8Array | undefined, allowed: readonly Uint8Array[]): Finding {
  const holds = found !== undefined && allowed.some((value) => constantTimeEqual(value, found));
  return finding(holds, hex(found ?? new Uint8Array()), allowed.map(hex).join(' or '));
}

/** The bytes in lower-case hex. `sha256Hex` returns the SHA-256 digest of the bytes in the same way. */
export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
export const sha256Hex = (bytes: Uint8Array): string => hex(sha256(bytes));

/** The finding for a check that does not apply. `why` says why manifest or evidence does not ask for it. */
export const notApplicable = (why: string): Finding => ({ outcome: 'not-applicable', found: why });

/** Returns the value of `read`, or the PrivatemodeError that `read` throws. Rethrows any other error. */
export function attempt<T>(read: () => T): { readonly value?: T; readonly error?: PrivatemodeError } {
  try {
    return { value: read() };
  } catch (error) {
    if (error instanceof PrivatemodeError) return { error };
    throw error;
  }
}

/**
 * Makes a check from the description of a row and a finding. Without a finding, the check is `not-evaluated`.
 * Control characters in `found` are escaped, because the remote service may have written the text.
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

/** Turns a PrivatemodeError into a failure. Any other error is a defect of this program and is rethrown. */
function failureBy(error: unknown): Finding {
  if (!(error instanceof PrivatemodeError)) throw error;
  const { message, code, detail } = error;
  return { ...finding(false, message), code, detail };
}

/**
 * The checks of one verification, by id. A verification has stages: all rows of a stage are judged, and if
 * one of them fails, no further stage begins. Before each step, other work of the process gets a turn.
 */
export class Checks {
  readonly #rows: readonly CheckDescription[];
  readonly #made = new Map<string, Check>();

  /** `rows` describes every check that this verification may make. */
  constructor(rows: readonly CheckDescription[]) {
    this.#rows = rows;
  }

  /** Judges the subject by each of these rows in turn. Returns whether no row failed. */
  async run<Subject>(rows: readonly CheckRow<Subject>[], subject: Subject): Promise<boolean> {
    await nextTurn();
    for (const row of rows) {
      const judging = async (): Promise<Finding> => row.judge(subject);
      this.#made.set(row.id, checkOf(row, await judging().catch(failureBy)));
    }
    return !rows.some(({ id }) => this.#made.get(id)?.outcome === 'fail');
  }

  /** Reads or fetches a value. On a failure, the check `id` fails, and the value is undefined. */
  async read<T>(id: string, read: () => T | Promise<T>): Promise<T | undefined> {
    await nextTurn();
    try {
      return await read();
    } catch (error) {
      this.refuse(id, failureBy(error));
      return undefined;
    }
  }

  /** Makes the check `id` fail, whatever its outcome was before. */
  refuse(id: string, failure: Finding): void {
    const row = this.#rows.find((each) => each.id === id);
    if (row === undefined) throw new Error(`no check ${id}`);
    this.#made.set(id, checkOf(row, failure));
  }

  /**
   * Judges one entry after the other and returns the first one that holds. Keeps the checks of this entry. If
   * no entry holds, keeps the checks of the entry that came closest.
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

  /** Returns one check for each of these rows, in order. A check that was not made is `not-evaluated`. */
  of(rows: readonly CheckDescription[]): readonly Check[] {
    return rows.map((row) => this.#made.get(row.id) ?? checkOf(row, undefined));
  }

  /** Counts the checks that hold. An entry that lacks only collateral comes first, as it may be valid. */
  #closeness(): number {
    const checks = [...this.#made.values()];
    const held = checks.filter(({ outcome }) => outcome !== 'fail').length;
    return checks.some(isRefuted) ? held : held + this.#rows.length;
  }
}

export function firstFailure(checks: readonly Check[]): Check | undefined {
  return checks.find(({ outcome }) => outcome === 'fail');
}

/** Whether the check failed for good, so that collateral that arrives later cannot make it pass. */
const isRefuted = ({ outcome, code }: Check): boolean =>
  outcome === 'fail' && code !== 'collateral_unavailable';

/**
 * Returns the check that decides against acceptance: the first one that failed for good, else the first one
 * that lacked collateral, else the first one that was not made. A check that lacks collateral ranks lower,
 * because a forger can leave out what has to be fetched, and must not get "nothing is proved either way".
 */
export const decisive = (checks: readonly Check[]): Check | undefined =>
  checks.find(isRefuted) ?? firstFailure(checks) ?? checks.find(({ outcome }) => outcome === 'not-evaluated');

/**
 * Whether these checks accept the evidence. Every row must have a check that passed; a conditional row may
 * also be `not-applicable`. No check may have failed. An empty or incomplete list never accepts.
 */
export function allAccepted(rows: readonly CheckDescription[], checks: readonly Check[]): boolean {
  const outcomes = new Map(checks.map(({ id, outcome }) => [id, outcome]));
  const holds = ({ id, conditional }: CheckDescription): boolean =>
    outcomes.get(id) === 'pass' || (outcomes.get(id) === 'not-applicable' && conditional === true);
  return rows.length > 0 && rows.every(holds) && firstFailure(checks) === undefined;
}
