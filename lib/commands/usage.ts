/** `privatemode-proxy usage`: sums up who used what, as a table or as JSON (docs/receipts.md). */
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, list, setting, text, valuesOf } from '../config/setting.ts';
import { invalid, momentIn, oneOf, parsePath, wants } from '../config/values.ts';
import { receiptsDirectory } from '../receipts/receipt-files.ts';
import { sumUsage, USAGE_KEYS, type UsageReport, type UsageSums } from '../receipts/usage.ts';
import { plural, printable, safeJson } from '../text.ts';
import { type Command, HELP, type Invocation } from './command.ts';

const SETTINGS = [
  setting('since', text('DATE', parseDate), {
    help: 'Count requests from this day (UTC) on, or from a time such as 2026-11-01T12:00:00Z.',
  }),
  setting('until', text('DATE', parseDate), {
    help: 'Count requests before this day (UTC) or time: 2026-12-01 for all of November.',
  }),
  setting('by', list('KEYS', oneOf(...USAGE_KEYS)), {
    default: 'client',
    help: 'Print one row per client, model or day, or per combination, as in client,day.',
  }),
  setting('dir', list('DIR,…', parsePath), {
    default: 'receipts',
    bare: 'a directory is given as --dir DIR',
    help: 'Directories of receipts, such as receipts in the workspace of each proxy, or those workspaces; their sums are added. Repeatable.',
  }),
  setting('json', BOOLEAN, { help: 'Print the report as one JSON object.' }),
  HELP,
] as const;

const EXIT_CODES = { counted: 0, incomplete: 10 } as const;

export const USAGE: Command = { flags: SETTINGS, help: renderHelp, run: printUsage };

/** Returns an exit code of EXIT_CODES. Throws config_invalid and receipts_unreadable. */
async function printUsage({ given, io: { stdout, stderr } }: Invocation): Promise<number> {
  const { since, until, by: wanted, dir, json } = valuesOf(SETTINGS, given);
  if (since !== undefined && until !== undefined && since >= until)
    throw invalid(
      `--since ${since.toISOString()} must be earlier than --until ${until.toISOString()}: swap them, or leave one out`,
    );
  const by = wanted.flatMap((word) => USAGE_KEYS.filter((key) => key === word));
  if (by.length === 0) throw invalid(`--by wants some of ${USAGE_KEYS.join(', ')}, and got none`);
  if (dir.length === 0) throw invalid('--dir wants a path, and got none');
  const directories = [...new Set(await Promise.all(dir.map(receiptsDirectory)))];
  const report = await sumUsage(directories, since, until, by);
  stdout.write(json ? `${safeJson(report, 2)}\n` : renderText(report, directories.join(', ')));
  const { unreadable, repeated, cutOff } = report.lines;
  if (unreadable > 0) stderr.write(`Not counted: ${plural(unreadable, 'line')} that cannot be read.\n`);
  if (repeated > 0)
    stderr.write(`Not counted: ${plural(repeated, 'line')} that came twice or out of order.\n`);
  if (cutOff > 0)
    stderr.write(`${plural(cutOff, 'file')} ended in the middle of a line, which was not counted.\n`);
  return unreadable + repeated === 0 ? EXIT_CODES.counted : EXIT_CODES.incomplete;
}

function parseDate(flag: string, given: string): Date {
  const moment = momentIn(/^\d{4}-\d\d-\d\d$/.test(given) ? `${given}T00:00:00Z` : given);
  if (moment !== undefined) return moment;
  throw wants(flag, 'a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z', given);
}

/** The columns after the keys. */
const COLUMNS: readonly (readonly [title: string, show: (sums: UsageSums) => unknown])[] = [
  ['requests', ({ requests }) => requests],
  ['complete', ({ complete }) => complete],
  ['refused', ({ refused }) => refused],
  ['failed', ({ failed }) => failed],
  ['truncated', ({ truncated }) => truncated],
  ['aborted', ({ aborted }) => aborted],
  ['tokens in', ({ tokensIn }) => tokensIn],
  ['from cache', ({ tokensCached }) => tokensCached],
  ['tokens out', ({ tokensOut }) => tokensOut],
  ['no count', ({ withoutTokens }) => withoutTokens],
  ['duration', ({ durationMs }) => clockTime(durationMs)],
  ['first (UTC)', ({ first }) => minute(first)],
  ['last (UTC)', ({ last }) => minute(last)],
];

/** `h:mm:ss` */
function clockTime(ms: number): string {
  const seconds = Math.round(ms / 1000);
  const two = (value: number): string => String(value % 60).padStart(2, '0');
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60))}:${two(seconds)}`;
}

const minute = (time: string | null): string => time?.slice(0, 16).replace('T', ' ') ?? '';

/** `where`: the directories, for a person. */
function renderText({ by, rows, total, files, ...report }: UsageReport, where: string): string {
  const period = periodText(report);
  const lost = report.lost > 0 ? `Receipts lost: ${report.lost}.\n` : '';
  if (files === 0)
    return `No receipts${period} lie in ${where}. A gateway with --receipts writes them to receipts in its --workspace.\n`;
  if (total.requests === 0) return `No requests${period}.\n${lost}`;
  const cells = (sums: UsageSums): string[] => COLUMNS.map(([, show]) => String(show(sums)));
  const lines = [
    [...by, ...COLUMNS.map(([title]) => title)],
    // The name of a model is a stranger's text.
    ...rows.map((row) => [...by.map((key) => printable(row[key] ?? '(none)')), ...cells(row)]),
    ['total', ...by.slice(1).map(() => ''), ...cells(total)],
  ];
  const widths = lines[0]?.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0))) ?? [];
  const padded = (cell: string, i: number): string =>
    i < by.length ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0);
  const table = lines.map((line) => `${line.map(padded).join('  ').trimEnd()}\n`).join('');
  return `${plural(total.requests, 'request')}${period} by the receipts in ${where}\n\n${table}${lost}`;
}

/** Empty without a period; else it begins with a blank. */
function periodText({ since, until }: Pick<UsageReport, 'since' | 'until'>): string {
  const short = (time: string): string => time.replace(/T00:00:00\.000Z$/, '').replace('.000Z', 'Z');
  const from = since === null ? '' : ` since ${short(since)}`;
  if (until === null) return from;
  return `${from}${from === '' ? '' : ' and'} before ${short(until)}`;
}

function renderHelp(): string {
  return helpPage(
    `Sums up the receipts of a gateway for each client of --clients: requests, how they ended, tokens and
time. Checks no signature: run "receipts verify" first. The service counts the tokens, and nothing
authenticates its count; a response that was cut off has none. "From cache" counts the tokens in
that the service found in its prompt cache.`,
    ['usage --since 2026-11-01 [flags]'],
    [
      section('Flags', SETTINGS),
      section('Exit codes', [
        ['   0', 'Every receipt of the period is counted.'],
        ['  10', 'Some lines are unreadable or duplicates, and are not counted; stderr says how many.'],
        ['   1', 'A flag is wrong, or the receipts cannot be read; "Error: …" says why.'],
      ]),
    ],
  );
}
