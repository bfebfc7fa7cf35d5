/**
 * Describes the checks of attestation evidence as rows of tables. A row has the id, the title, the source of
 * the rule, and the judging function of a check. Only `allAccepted` decides whether evidence is accepted.
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
  /** What must hold for the check to pass. A finding may state a more precise text. */
  readonly expected: string;
  /** The error code of the check if it fails. If `code` is absent, the error code is `attestation_failed`. */
  readonly code?: ErrorCode;
  /** Whether the check may be `not-applicable` in an accepted verdict. Checks without this flag must pass. */
  readonly conditional?: true;
}

export interface Finding {
  readonly outcome: 'pass' | 'fail' | 'not-applicable';
  /** What was found, as text for a person. No code parses this text, which never has key material. */
  readonly found: string;
  readonly expected?: string;
  /** The error code of a failed check. A finding that passes has no error code. */
  readonly code?: ErrorCode | undefined;
  /** Facts about a failed check that callers need in addition to its error code. */
  readonly detail?: FailureDetail | undefined;
  /** The seconds since a certificate revocation list was issued. Only such a finding has an age. */
  readonly age?: number | undefined;
}

/** One check of the attestation evidence, with its outcome. A verdict lists checks (docs/security.md). */
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
  /** If `judge` throws a PrivatemodeError, the check fails with the error's code, message and detail. */
  readonly judge: (subject: Subject) => Finding | Promise<Finding>;
}

export type Rows<Subject> = readonly CheckRow<Subject>[];

/** Makes a check row. `section` is the section of docs/protocol/attestation.md with the rule of the check. */
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

/** Returns the bytes in lower-case hex. `sha256Hex` returns the SHA-256 digest of the bytes in hex. */
export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
export const sha256Hex = (bytes: Uint8Array): string => hex(sha256(bytes));

/** The finding for a check that does not apply. `why` says why manifest or evidence do not need the check. */
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
 * Holds the checks of one verification, by id. Each stage of a verification judges all its rows, and no stage
 * begins after a row has failed. Before each stage, other tasks of the process may run.
 */
export class Checks {
  readonly #rows: readonly CheckDescription[];
  readonly #made = new Map<string, Check>();

  /** `rows` describes every check that this verification may make. */
  constructor(rows: readonly CheckDescription[]) {
    this.#rows = rows;
  }

  /** Judges the subject by each of the given rows in turn. Returns true if no row failed. */
  async run<Subject>(rows: readonly CheckRow<Subject>[], subject: Subject): Promise<boolean> {
    await nextTurn();
    for (const row of rows) {
      const judging = async (): Promise<Finding> => row.judge(subject);
      this.#made.set(row.id, checkOf(row, await judging().catch(failureBy)));
    }
    return !rows.some(({ id }) => this.#made.get(id)?.outcome === 'fail');
  }

  /** Returns the value of `read`. If `read` fails, the check `id` fails, and the result is undefined. */
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
   * Judges the entries in order and returns the first entry that passes. Keeps the checks of the entry that
   * passes. If no entry passes, keeps the checks of the entry that has the highest `#closeness`.
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

  /** Returns one check for each given row, in order. A check that was not made is `not-evaluated`. */
  of(rows: readonly CheckDescription[]): readonly Check[] {
    return rows.map((row) => this.#made.get(row.id) ?? checkOf(row, undefined));
  }

  /** Counts checks that did not fail. An entry that lacks only collateral may be valid, so it ranks first. */
  #closeness(): number {
    const checks = [...this.#made.values()];
    const held = checks.filter(({ outcome }) => outcome !== 'fail').length;
    return checks.some(isRefuted) ? held : held + this.#rows.length;
  }
}

export function firstFailure(checks: readonly Check[]): Check | undefined {
  return checks.find(({ outcome }) => outcome === 'fail');
}

/** Whether the check failed for a reason that collateral fetched later cannot change. */
const isRefuted = ({ outcome, code }: Check): boolean =>
  outcome === 'fail' && code !== 'collateral_unavailable';

/**
 * Returns the check that decides against acceptance. A check with a permanent failure comes first, then a
 * check that lacked collateral, then a check that was not made. Missing collateral comes second, because a
 * forger who omits collateral must not thereby hide a permanent failure.
 */
export const decisive = (checks: readonly Check[]): Check | undefined =>
  checks.find(isRefuted) ?? firstFailure(checks) ?? checks.find(({ outcome }) => outcome === 'not-evaluated');

/**
 * Whether the checks accept the evidence. The check of every row must have passed. Only the check of a
 * conditional row may be `not-applicable`. No check may have failed. Without rows, the result is false.
 */
export function allAccepted(rows: readonly CheckDescription[], checks: readonly Check[]): boolean {
  const outcomes = new Map(checks.map(({ id, outcome }) => [id, outcome]));
  const holds = ({ id, conditional }: CheckDescription): boolean =>
    outcomes.get(id) === 'pass' || (outcomes.get(id) === 'not-applicable' && conditional === true);
  return rows.length > 0 && rows.every(holds) && firstFailure(checks) === undefined;
}
