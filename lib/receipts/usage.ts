/** Who used what: the sums of the receipts of directories (docs/receipts.md), by client, model and day. */
import { join } from 'node:path';
import { linesOf } from '../files/line-files.ts';
import { parseLine, RECEIPT_OUTCOMES, type ReceiptLine, type RequestLine } from './receipt.ts';
import { receiptFiles, receiptsUnreadable } from './receipt-files.ts';

/** The keys that requests can be summed by. */
export const USAGE_KEYS = ['client', 'model', 'day'] as const;
export type UsageKey = (typeof USAGE_KEYS)[number];

/** `withoutTokens`: requests that were sent to the service, and for which it gave no count of tokens. */
const TOKENS = ['tokensIn', 'tokensCached', 'tokensOut', 'withoutTokens'] as const;
const COUNTS = ['requests', ...RECEIPT_OUTCOMES, ...TOKENS, 'durationMs'] as const;

/** The sums of some requests, and when the first and the last of them came (RFC 3339 in UTC). */
export type UsageSums = Record<(typeof COUNTS)[number], number> & Record<'first' | 'last', string | null>;
/** The sums of requests that have these keys in common. A key is null if they do not have it. */
export type UsageRow = Partial<Record<UsageKey, string | null>> & UsageSums;

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
  /** Lines that were not counted: no receipts, copies, and those that a crash cut off. */
  readonly lines: { unreadable: number; repeated: number; cutOff: number };
}

/**
 * Sums the receipts of directories, as a stream. Checks no signature: `receipts verify` does that. A line
 * counts once: in the order of days, the numbers of an instance rise. Throws receipts_unreadable.
 */
export async function sumUsage(
  directories: readonly string[],
  since: Date | undefined,
  until: Date | undefined,
  by: readonly UsageKey[],
): Promise<UsageReport> {
  const [from = '', to = '~'] = [since?.toISOString(), until?.toISOString()];
  const rows = new Map<string, UsageRow>();
  const total = nothing();
  const lines = { unreadable: 0, repeated: 0, cutOff: 0 };
  const lastSeq = new Map<string, number>();
  let lost = 0;

  function add(line: ReceiptLine): void {
    const isNew = line.seq > (lastSeq.get(line.instance) ?? -1);
    if (!isNew) lines.repeated++;
    else lastSeq.set(line.instance, line.seq);
    if (!isNew || line.time < from || line.time >= to) return;
    if (line.type === 'lost') lost += line.count;
    if (line.type !== 'request') return;
    const keys = { client: line.client, model: line.model, day: line.time.slice(0, 10) };
    const id = by.map((key) => (keys[key] === null ? '~' : `!${keys[key]}`)).join('\0'); // null sorts last
    const row = rows.get(id) ?? { ...Object.fromEntries(by.map((key) => [key, keys[key]])), ...nothing() };
    rows.set(id, row);
    for (const sums of [row, total]) addTo(sums, line);
  }
  const found: { readonly directory: string; readonly file: string }[] = [];
  let directory = '';
  try {
    for (directory of directories)
      for (const file of await receiptFiles(directory)) found.push({ directory, file });
    // No line stands in a file of an earlier day.
    const read = found
      .filter(({ file }) => file >= from.slice(0, 10))
      .sort((a, b) => (a.file < b.file ? -1 : 1));
    for (const each of read) {
      ({ directory } = each);
      for await (const { text, isWhole } of linesOf(join(directory, each.file))) {
        const line = parseLine(text);
        if (!isWhole) lines.cutOff++;
        else if (line === undefined || !isSummable(line)) lines.unreadable++;
        else add(line);
      }
    }
    const inOrder = Array.from(rows).sort(([a], [b]) => (a < b ? -1 : 1));
    const period = { since: since?.toISOString() ?? null, until: until?.toISOString() ?? null };
    return { ...period, by, rows: inOrder.map(([, row]) => row), total, lost, files: read.length, lines };
  } catch (cause) {
    throw receiptsUnreadable(directory, cause);
  }
}

const nothing = (): UsageSums => ({
  ...(Object.fromEntries(COUNTS.map((name) => [name, 0])) as Record<(typeof COUNTS)[number], number>),
  first: null,
  last: null,
});

function addTo(sums: UsageSums, { time, durationMs, tokens, secretId, outcome }: RequestLine): void {
  sums.requests++;
  sums[outcome]++;
  sums.tokensIn += tokens?.in ?? 0;
  sums.tokensCached += tokens?.cached ?? 0;
  sums.tokensOut += tokens?.out ?? 0;
  if (tokens === null && secretId !== null) sums.withoutTokens++;
  sums.durationMs += durationMs;
  if (sums.first === null || time < sums.first) sums.first = time;
  if (sums.last === null || time > sums.last) sums.last = time;
}

const isAmount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
const isName = (value: unknown): boolean =>
  value === null || (typeof value === 'string' && value.length <= 256);

/** Whether the members that are summed have the right form: nobody has checked the signature of the line. */
function isSummable(line: ReceiptLine): boolean {
  if (line.type === 'lost') return isAmount(line.count);
  if (line.type !== 'request') return true;
  const { client, model, outcome, durationMs, tokens } = line;
  const counts = Object.values(tokens ?? {}).filter((count) => count !== null);
  return (
    RECEIPT_OUTCOMES.includes(outcome) &&
    [durationMs, ...counts].every(isAmount) &&
    [client, model].every(isName)
  );
}
