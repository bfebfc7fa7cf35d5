/** Who used what: the sums of the receipts of directories (docs/receipts.md), by client, model and day. */
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
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
import { listReceiptFiles, readFileName } from './receipt-files.ts';

/** By what requests are summed. */
export const USAGE_KEYS = ['client', 'model', 'day'] as const;
export type UsageKey = (typeof USAGE_KEYS)[number];

/** The sums of some requests. The names are an interface: of the JSON, and of the columns of the CSV (docs/receipts.md). */
export interface UsageSums extends Readonly<Record<ReceiptOutcome, number>> {
  readonly requests: number;
  /** By the count of the service, which nothing authenticates. */
  readonly tokensIn: number;
  /** Those of `tokensIn` that came from the cache of the service, as far as it says. */
  readonly tokensCached: number;
  readonly tokensOut: number;
  /** Requests that were sent to the service and of which it told no count: they may have used tokens all the same. */
  readonly withoutTokens: number;
  readonly durationMs: number;
  /** When the first and the last of them came: RFC 3339 in UTC; null where there is none. */
  readonly first: string | null;
  readonly last: string | null;
}

/** What its requests have in common; null: they have none, or it is not known. */
export type UsageRow = Readonly<Partial<Record<UsageKey, string | null>>> & UsageSums;

export interface UsageReport {
  /** RFC 3339 in UTC; null: no limit. The period ends before `until`. */
  readonly since: string | null;
  readonly until: string | null;
  readonly by: readonly UsageKey[];
  readonly rows: readonly UsageRow[];
  readonly total: UsageSums;
  /** Requests without a receipt, as far as the proxy knew how many; `unknown`: how often it did not. */
  readonly lost: { readonly receipts: number; readonly unknown: number };
  /** Files that were read. */
  readonly files: number;
  readonly lines: {
    /** Lines that are no receipts. */
    readonly unreadable: number;
    /** Lines that are there twice, or that belong to another file. They are not counted. */
    readonly repeated: number;
    /** Lines that a crash cut off. */
    readonly cutOff: number;
    /** The first line that is unreadable or repeated; `file` has its directory where several were read. */
    readonly first: { readonly file: string; readonly line: number } | null;
  };
}

export interface UsageOptions {
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
  readonly by?: readonly UsageKey[];
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

/** Rows that are kept; clients choose the names of models. The requests of further ones are in one row. */
const MOST_ROWS = 50_000;
export const OTHER = '(other)';

const DAY_MS = 24 * 3_600_000;

/**
 * Sums the receipts of directories. Reads them as a stream, in memory that does not grow with them. Checks no signature: that is what
 * `receipts verify` does. A line counts once: those of an instance have rising numbers, and others are left out. Throws receipts_unreadable.
 */
export async function sumUsage(
  directories: readonly string[],
  options: UsageOptions = {},
): Promise<UsageReport> {
  const { since, until, by = ['client'] } = options;
  const [from, to] = [since?.toISOString() ?? '', until?.toISOString() ?? '~'];
  // A receipt is written after its request has come, so never before that day, unless the clock is set back meanwhile.
  const firstDay = since === undefined ? '' : new Date(since.getTime() - DAY_MS).toISOString().slice(0, 10);
  const isWithin = (time: string): boolean => time >= from && time < to;

  const rows = new Map<string, Mutable<UsageRow>>();
  let others: Mutable<UsageRow> | undefined;
  const total = nothing();
  const lost = { receipts: 0, unknown: 0 };
  const lines = { unreadable: 0, repeated: 0, cutOff: 0, first: null as UsageReport['lines']['first'] };
  let read = 0;

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

  const lastSeq = new Map<string, number>(); // by instance: a copy of its files in another directory repeats its lines
  /** How a file is named in the report. */
  const named = (directory: string, file: string): string =>
    directories.length > 1 ? join(directory, file) : file;

  async function addDirectory(directory: string): Promise<void> {
    const { instances, foreign } = await listReceiptFiles(directory);
    for (const file of foreign) {
      if (readFileName(file) === undefined || file < firstDay) continue;
      lines.unreadable += 1; // has the name of a receipt file, and is a link or the like
      lines.first ??= { file: named(directory, file), line: 0 };
    }
    for (const [instance, files] of instances) {
      const wanted = files.filter((file) => file >= firstDay);
      read += wanted.length;
      for await (const { file, number, text, complete } of linesOf(directory, wanted)) {
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
          else if (line.type === 'lost') {
            lost.receipts += line.count ?? 0;
            lost.unknown += line.count === null ? 1 : 0;
          }
          continue;
        }
        lines.first ??= { file: named(directory, file), line: number };
      }
    }
  }

  for (const directory of directories) {
    await addDirectory(directory).catch((cause: NodeJS.ErrnoException) => {
      const message = `the receipts in ${directory} cannot be read (${cause.code ?? 'unknown cause'})`;
      throw new PrivatemodeError('receipts_unreadable', message, { cause, remedy: REMEDY });
    });
  }
  const period = { since: since?.toISOString() ?? null, until: until?.toISOString() ?? null };
  const inOrder = [...sorted([...rows.values()], by), ...(others ? [others] : [])];
  return { ...period, by, rows: inOrder, total, lost, files: read, lines };
}

const REMEDY =
  'Name their directory with --dir: it is receipts in the --workspace of a gateway that runs with --receipts.';

/** What is summed of a request. */
type Summed = Pick<
  RequestReceipt,
  'time' | 'client' | 'model' | 'durationMs' | 'tokens' | 'epoch' | 'outcome'
>;

/** One of the requests that were refused and only counted; it came when the count began, or soon after. */
const refusedRequest = (time: string, { client }: RefusalCount): Summed => ({
  ...{ time, client, model: null, durationMs: 0, tokens: null, epoch: null, outcome: 'refused' },
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

/** By the keys, in the order of their characters; what is null comes last. */
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
/** Of a client or a model; the proxy takes no longer names. */
const LONGEST_NAME = 256;

const isCount = (value: unknown): boolean => value === null || isAmount(value);
const isName = (value: unknown): boolean =>
  value === null || (typeof value === 'string' && value.length <= LONGEST_NAME);

/** Whether what is summed is what it should be: nobody has checked the line yet. */
function isSummable(line: ReceiptLine): boolean {
  if (!isWellFormed(line)) return false;
  if (line.type === 'refused') return line.counts.every(({ client }) => isName(client));
  if (line.type !== 'request') return true;
  const { client = null, model, tokens, outcome } = line;
  const hasTokens =
    tokens === null ||
    (typeof tokens === 'object' && [tokens.in, tokens.out, tokens.cached ?? null].every(isCount));
  return OUTCOMES.has(outcome) && hasTokens && isName(client) && isName(model);
}
