/** `privatemode-proxy usage`: sums up who used what, as a table or as JSON (docs/receipts.md). */
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, list, setting, text, valuesOf } from '../config/setting.ts';
import { invalid, momentIn, oneOf, parsePath, wants } from '../config/values.ts';
import { RECEIPT_OUTCOMES, receiptsDirectory } from '../receipts/receipt.ts';
import { sumUsage, USAGE_KEYS, type UsageReport, type UsageSums } from '../receipts/usage.ts';
import { plural, printable, safeJson } from '../text.ts';
import { type Command, HELP, type Invocation } from './command.ts';

const SETTINGS = [
  setting('since', text('DATE', parseDate), {
    help: 'Count requests from this day (UTC) or time on.',
  }),
  setting('until', text('DATE', parseDate), {
    help: 'Count requests before this day or time: 2026-12-01 for all of November.',
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

export const USAGE: Command = { flags: SETTINGS, help: renderHelp, run: printUsage };

/** Returns 0, or 10 if lines were not counted. Throws config_invalid and receipts_unreadable. */
async function printUsage({ given, io: { stdout, stderr } }: Invocation): Promise<number> {
  const { since, until, by: wanted, dir, json } = valuesOf(SETTINGS, given);
  const by = wanted.flatMap((word) => USAGE_KEYS.filter((key) => key === word));
  if (by.length === 0) throw invalid(`--by wants some of ${USAGE_KEYS.join(', ')}, and got none`);
  if (dir.length === 0) throw invalid('--dir wants a path, and got none');
  const directories = [...new Set(dir.map(receiptsDirectory))];
  const report = await sumUsage(directories, since, until, by);
  const period = (name: string, word: string) => {
    const date = given.values.get(name); // the date as the user wrote it
    return date === undefined ? '' : ` ${word} ${date}`;
  };
  const what = `${period('since', 'since')}${period('until', 'before')} in ${directories.join(', ')}`;
  stdout.write(json ? `${safeJson(report, 2)}\n` : renderText(report, what));
  const { unreadable, repeated, cutOff } = report.lines;
  const left = { 'that cannot be read': unreadable, 'that came twice or out of order': repeated };
  for (const [which, count] of Object.entries({ ...left, 'without its end': cutOff }))
    if (count > 0) stderr.write(`Not counted: ${plural(count, 'line')} ${which}.\n`);
  return unreadable + repeated === 0 ? 0 : 10;
}

function parseDate(flag: string, given: string): Date {
  const moment = momentIn(/^\d{4}-\d\d-\d\d$/.test(given) ? `${given}T00:00:00Z` : given);
  if (moment !== undefined) return moment;
  throw wants(flag, 'a day such as 2026-12-01, or a time such as 2026-12-01T00:00:00Z', given);
}

/** The sums in the table, by their names in the JSON report. The report has more sums than the table. */
const COLUMNS = [
  'requests',
  ...RECEIPT_OUTCOMES,
  'tokensIn',
  'tokensCached',
  'tokensOut',
  'withoutTokens',
] as const;

/** `what`: the period, and where the receipts are. */
function renderText({ by, rows, total, files, lost }: UsageReport, what: string): string {
  if (files === 0)
    return `No receipts${what}. A gateway with --receipts writes them to receipts in its --workspace.\n`;
  const cells = (sums: UsageSums): string[] => COLUMNS.map((name) => `${sums[name]}`);
  const lines = [
    [...by, ...COLUMNS.map((name) => name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`))],
    // A stranger may have chosen the name of a model, so it is made printable.
    ...rows.map((row) => [...by.map((key) => printable(row[key] ?? '(none)')), ...cells(row)]),
    ['total', ...by.slice(1).map(() => ''), ...cells(total)],
  ];
  const widths = lines[0]?.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0))) ?? [];
  const padded = (cell: string, i: number): string =>
    i < by.length ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0);
  const table = lines.map((line) => `${line.map(padded).join('  ').trimEnd()}\n`).join('');
  const missing = lost > 0 ? `Receipts lost: ${lost}.\n` : '';
  return `${plural(total.requests, 'request')}${what}\n\n${table}${missing}`;
}

function renderHelp(): string {
  return helpPage(
    `Sums up the receipts of a gateway: requests, how they ended, and tokens, for each client of --clients. Checks no
signature: run "receipts verify" first. The service counts the tokens, and nothing authenticates its count. "Tokens cached"
are the tokens in that the service found in its prompt cache; requests "without tokens" were sent and got no count.`,
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
