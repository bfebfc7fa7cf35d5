/** Sums up the usage in receipts by client, model and day (docs/receipts.md). */
import { join } from 'node:path';
import { linesOf } from '../files/durable-file.ts';
import * as receipts from './receipt.ts';

/** The keys by which requests can be grouped. */
export const USAGE_KEYS = ['client', 'model', 'day'] as const;
type UsageKey = (typeof USAGE_KEYS)[number];

/** `withoutTokens`: requests that were sent to the service but have no token counts from the service. */
const TOKENS = ['tokensIn', 'tokensCached', 'tokensOut', 'withoutTokens'] as const;
const COUNTS = ['requests', ...receipts.RECEIPT_OUTCOMES, ...TOKENS, 'durationMs'] as const;

/** The sums over some requests, and the times of the first and the last request (RFC 3339 in UTC). */
export type UsageSums = Record<(typeof COUNTS)[number], number> & Record<'first' | 'last', string | null>;
/** The sums over requests with the same keys. A key is null if these requests do not have the key. */
export type UsageRow = Partial<Record<UsageKey, string | null>> & UsageSums;
export type UsageReport = Awaited<ReturnType<typeof sumUsage>>;

/**
 * Sums the receipts of directories as a stream, from `since` until just before `until`; undefined means no
 * limit. Checks no signatures, unlike `receipts verify`. Copies of a line do not count: files are read in the
 * order of their days, in which the line numbers of an instance rise. Resolves with a row for each
 * combination of the keys `by`, the sums of all rows, the number of lost receipts, the number of files, and
 * the number of lines that were not counted. Throws receipts_unreadable.
 */
export async function sumUsage(
  directories: readonly string[],
  since: Date | undefined,
  until: Date | undefined,
  by: readonly UsageKey[],
) {
  const period = { since: since?.toISOString() ?? null, until: until?.toISOString() ?? null };
  const [from, to] = [period.since ?? '', period.until ?? '~'];
  const rows = new Map<string, UsageRow>();
  const total = nothing();
  const lines = { unreadable: 0, repeated: 0, cutOff: 0 };
  const lastSeq = new Map<string, number>();
  let lost = 0;

  function add(line: receipts.ReceiptLine): void {
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
  let directory = ''; // the directory that is being read, for the error
  try {
    for (directory of directories)
      for (const file of await receipts.receiptFiles(directory))
        if (file >= from.slice(0, 10)) found.push({ directory, file }); // older files have no newer lines
    for (const each of found.sort((a, b) => (a.file < b.file ? -1 : 1))) {
      ({ directory } = each);
      for await (const { text, isWhole } of linesOf(join(directory, each.file))) {
        const line = receipts.parseLine(text);
        if (!isWhole) lines.cutOff++;
        else if (line === undefined || !isSummable(line)) lines.unreadable++;
        else add(line);
      }
    }
  } catch (cause) {
    throw receipts.receiptsUnreadable(directory, cause);
  }
  const inOrder = Array.from(rows).sort(([a], [b]) => (a < b ? -1 : 1));
  return { ...period, by, rows: inOrder.map(([, row]) => row), total, lost, files: found.length, lines };
}

const nothing = (): UsageSums => ({
  ...(Object.fromEntries(COUNTS.map((name) => [name, 0])) as Record<(typeof COUNTS)[number], number>),
  first: null,
  last: null,
});

function addTo(sums: UsageSums, { time, durationMs, tokens, secretId, outcome }: receipts.RequestLine): void {
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

/** Whether all members to be summed have the right form, because no signature was checked. */
function isSummable(line: receipts.ReceiptLine): boolean {
  const isAmount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
  if (line.type === 'lost') return isAmount(line.count);
  if (line.type !== 'request') return true;
  const { client, model, outcome, durationMs, tokens } = line;
  const amounts = [durationMs, ...Object.values(tokens ?? {}).filter((count) => count !== null)];
  const names: unknown[] = [client, model].filter((name) => name !== null);
  const areNames = names.every((name) => typeof name === 'string' && name.length <= 256);
  return receipts.RECEIPT_OUTCOMES.includes(outcome) && amounts.every(isAmount) && areNames;
}
