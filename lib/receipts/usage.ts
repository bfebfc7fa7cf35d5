/** Who used what: the sums of the receipts of directories (docs/receipts.md), by client, model and day. */
import { join } from 'node:path';
import { linesOf } from '../files/line-files.ts';
import {
  isAmount,
  isWellFormed,
  parseLine,
  type ReceiptLine,
  type ReceiptOutcome,
  type RefusalCount,
  type RequestReceipt,
} from './receipt.ts';
import { listReceiptFiles, readFileName, receiptsUnreadable } from './receipt-files.ts';

/** The keys that requests can be summed by. */
export const USAGE_KEYS = ['client', 'model', 'day'] as const;
export type UsageKey = (typeof USAGE_KEYS)[number];

/**
 * The sums of some requests. The names of the members are an interface: of the JSON, and of the columns of
 * the CSV (docs/receipts.md).
 */
export interface UsageSums extends Readonly<Record<ReceiptOutcome, number>> {
  readonly requests: number;
  /** Tokens as the service counted them, which nothing authenticates. */
  readonly tokensIn: number;
  /** Those of `tokensIn` that came from the cache of the service, as far as it says. */
  readonly tokensCached: number;
  readonly tokensOut: number;
  /**
   * Requests that were sent to the service and for which it gave no count. They may have used tokens all the
   * same.
   */
  readonly withoutTokens: number;
  readonly durationMs: number;
  /** When the first and the last of them came: RFC 3339 in UTC; null where there is none. */
  readonly first: string | null;
  readonly last: string | null;
}

/**
 * The sums of requests that have these keys in common. A key is null if the requests do not have it, or if it
 * is not known.
 */
export type UsageRow = Readonly<Partial<Record<UsageKey, string | null>>> & UsageSums;

export interface UsageReport {
  /** RFC 3339 in UTC; null: no limit. The period ends before `until`. */
  readonly since: string | null;
  readonly until: string | null;
  readonly by: readonly UsageKey[];
  readonly rows: readonly UsageRow[];
  readonly total: UsageSums;
  /** Requests whose receipts were lost. */
  readonly lost: number;
  /** Files that were read. */
  readonly files: number;
  /** Directories that hold no receipts of any day. Left out if there are none. */
  readonly empty?: readonly string[];
  readonly lines: {
    /** Lines that are no receipts. */
    readonly unreadable: number;
    /** Lines that are there twice, or that belong to another file. They are not counted. */
    readonly repeated: number;
    /** Lines that a crash cut off. */
    readonly cutOff: number;
    /** The first line that is unreadable or repeated. `file` includes its directory if several were read. */
    readonly first: { readonly file: string; readonly line: number } | null;
  };
}

export interface UsageOptions {
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
  readonly by?: readonly UsageKey[];
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/**
 * The most rows, because clients choose the names of models. The requests of all further rows share one row.
 */
const MOST_ROWS = 50_000;
export const OTHER = '(other)';

const DAY_MS = 24 * 3_600_000;

/**
 * Sums the receipts of directories. Reads them as a stream, so that memory does not grow with them. Checks no
 * signature: `receipts verify` does that. A line counts once: the numbers of an instance rise from file to
 * file, in the order of their days, so a line whose number does not rise is left out. Throws
 * receipts_unreadable.
 */
export async function sumUsage(
  directories: readonly string[],
  options: UsageOptions = {},
): Promise<UsageReport> {
  const { since, until, by = ['client'] } = options;
  const [from, to] = [since?.toISOString() ?? '', until?.toISOString() ?? '~'];
  // A receipt is written after its request has come, so never before that day, unless the clock is set back
  // meanwhile. One day is allowed for that.
  const firstDay = since === undefined ? '' : new Date(since.getTime() - DAY_MS).toISOString().slice(0, 10);
  const isWithin = (time: string): boolean => time >= from && time < to;

  const rows = new Map<string, Mutable<UsageRow>>();
  let others: Mutable<UsageRow> | undefined;
  const total = nothing();
  let lost = 0;
  const lines = { unreadable: 0, repeated: 0, cutOff: 0, first: null as UsageReport['lines']['first'] };

  function add(receipt: Summed, requests = 1): void {
    addTo(total, receipt, requests);
    const shared = by.map((key) => KEYS[key](receipt));
    const id = JSON.stringify(shared);
    addTo(rows.get(id) ?? rowFor(id, shared), receipt, requests);
  }
  function rowFor(id: string, shared: readonly (string | null)[]): Mutable<UsageRow> {
    if (rows.size >= MOST_ROWS) {
      others ??= newRow(by.map(() => OTHER));
      return others;
    }
    const row = newRow(shared);
    rows.set(id, row);
    return row;
  }
  const newRow = (shared: readonly (string | null)[]): Mutable<UsageRow> => ({
    ...Object.fromEntries(by.map((key, i) => [key, shared[i] ?? null])),
    ...nothing(),
  });

  // By instance: a copy of its files in another directory repeats its lines.
  const lastSeq = new Map<string, number>();
  /** How a file is named in the report. */
  const named = (directory: string, file: string): string =>
    directories.length > 1 ? join(directory, file) : file;

  const empty: string[] = [];

  /** Resolves with the files of a directory that the period needs. */
  async function list(directory: string): Promise<readonly FoundFile[]> {
    const { instances, foreign } = await listReceiptFiles(directory);
    if (instances.size === 0) empty.push(directory);
    for (const file of foreign) {
      if (readFileName(file) === undefined || file < firstDay) continue;
      lines.unreadable += 1; // has the name of a receipt file, and is a link or the like
      lines.first ??= { file: named(directory, file), line: 0 };
    }
    return Array.from(instances, ([instance, files]) =>
      files.filter((file) => file >= firstDay).map((file) => ({ directory, instance, file })),
    ).flat();
  }
  async function addFile({ directory, instance, file }: FoundFile): Promise<void> {
    for await (const { number, text, complete } of linesOf(directory, [file])) {
      if (!complete) {
        lines.cutOff += 1;
        continue;
      }
      const line = parseLine(text);
      if (line === undefined || !isSummable(line)) lines.unreadable += 1;
      else if (line.instance !== instance || line.seq <= (lastSeq.get(instance) ?? -1)) lines.repeated += 1;
      else {
        lastSeq.set(instance, line.seq);
        if (!isWithin(line.time)) continue;
        if (line.type === 'request') add(line);
        else if (line.type === 'refused')
          for (const each of line.counts) add(refusedRequest(line.time, each), each.count);
        else if (line.type === 'lost') lost += line.count;
        continue;
      }
      lines.first ??= { file: named(directory, file), line: number };
    }
  }
  const reading = <Read>(directory: string, read: Promise<Read>): Promise<Read> =>
    read.catch((cause: unknown) => {
      throw receiptsUnreadable(directory, cause, REMEDY);
    });

  const found: FoundFile[] = [];
  for (const directory of directories) found.push(...(await reading(directory, list(directory))));
  // The days of an instance may lie in several directories, and its numbers rise from day to day.
  const inOrderOfDays = found.toSorted((a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : 0));
  for (const file of inOrderOfDays) await reading(file.directory, addFile(file));
  const period = { since: since?.toISOString() ?? null, until: until?.toISOString() ?? null };
  const inOrder = [...sorted([...rows.values()], by), ...(others ? [others] : [])];
  const counted = { ...period, by, rows: inOrder, total, lost, files: found.length };
  return { ...counted, ...(empty.length === 0 ? {} : { empty }), lines };
}

/** A file of receipts, and the directory in which it was found. */
interface FoundFile {
  readonly directory: string;
  readonly instance: string;
  readonly file: string;
}

const REMEDY =
  'Name their directory with --dir: it is receipts in the --workspace of a gateway that runs with --receipts.';

/** The members of a receipt that are summed. */
type Summed = Pick<
  RequestReceipt,
  'time' | 'client' | 'model' | 'durationMs' | 'tokens' | 'epoch' | 'outcome'
>;

/** A request that was refused and only counted, as a receipt. It came when the count began, or soon after. */
const refusedRequest = (time: string, { client }: RefusalCount): Summed => ({
  time,
  client,
  model: null,
  durationMs: 0,
  tokens: null,
  epoch: null,
  outcome: 'refused',
});

const KEYS: Readonly<Record<UsageKey, (receipt: Summed) => string | null>> = {
  client: ({ client }) => client ?? null, // receipts of older versions do not have it
  model: ({ model }) => model,
  day: ({ time }) => time.slice(0, 10),
};

const nothing = (): Mutable<UsageSums> => ({
  requests: 0,
  complete: 0,
  refused: 0,
  failed: 0,
  truncated: 0,
  aborted: 0,
  tokensIn: 0,
  tokensCached: 0,
  tokensOut: 0,
  withoutTokens: 0,
  durationMs: 0,
  first: null,
  last: null,
});

function addTo(
  sums: Mutable<UsageSums>,
  { time, durationMs, tokens, epoch, outcome }: Summed,
  requests: number,
): void {
  sums.requests += requests;
  sums[outcome] += requests;
  sums.tokensIn += tokens?.in ?? 0;
  sums.tokensCached += tokens?.cached ?? 0;
  sums.tokensOut += tokens?.out ?? 0;
  if (tokens === null && epoch !== null) sums.withoutTokens += 1;
  sums.durationMs += durationMs;
  if (sums.first === null || time < sums.first) sums.first = time;
  if (sums.last === null || time > sums.last) sums.last = time;
}

/** Sorts rows by these keys, in the order of characters. Null comes last. */
function sorted(rows: readonly UsageRow[], by: readonly UsageKey[]): readonly UsageRow[] {
  const inOrder = (a: UsageRow, b: UsageRow): number => {
    for (const key of by) {
      const [left, right] = [a[key] ?? null, b[key] ?? null];
      if (left === right) continue;
      if (left === null || right === null) return left === null ? 1 : -1;
      return left < right ? -1 : 1;
    }
    return 0;
  };
  return rows.toSorted(inOrder);
}

const OUTCOMES: ReadonlySet<unknown> = new Set<ReceiptOutcome>([
  'complete',
  'aborted',
  'truncated',
  'refused',
  'failed',
]);
/** Characters in the name of a client or a model. The proxy takes no longer names. */
const LONGEST_NAME = 256;

const isAmountOrNull = (value: unknown): boolean => value === null || isAmount(value);
const isName = (value: unknown): boolean =>
  value === null || (typeof value === 'string' && value.length <= LONGEST_NAME);

/** Whether the members that are summed have the right form: nobody has checked the line yet. */
function isSummable(line: ReceiptLine): boolean {
  if (!isWellFormed(line)) return false;
  if (line.type === 'refused') return line.counts.every(({ client }) => isName(client));
  if (line.type !== 'request') return true;
  const { client = null, model, tokens, outcome } = line;
  const hasTokens =
    tokens === null ||
    (typeof tokens === 'object' && [tokens.in, tokens.out, tokens.cached ?? null].every(isAmountOrNull));
  return OUTCOMES.has(outcome) && hasTokens && isName(client) && isName(model);
}
