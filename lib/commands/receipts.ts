/** `privatemode-proxy receipts verify`: checks receipts and prints a report (docs/receipts.md). */
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, list, setting, text, valuesOf } from '../config/setting.ts';
import { invalid, momentIn, parsePath, wants } from '../config/values.ts';
import { checkReceipts, type ReceiptsReport } from '../receipts/check-receipts.ts';
import { receiptsDirectory } from '../receipts/receipt.ts';
import { plural, printable, safeJson } from '../text.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/verdict.ts';
import { type Command, HELP, type Invocation } from './command.ts';

const SETTINGS = [
  setting('dir', text('DIR', parsePath), {
    default: 'receipts',
    bare: 'a directory is given as --dir DIR',
    help: 'Directory of the receipts, which is receipts in the workspace of the proxy, or that workspace.',
  }),
  setting('since', text('YYYY-MM-DD', parseDay), {
    help: 'Begin with the files of this day (UTC). Whether earlier ones are missing is not checked.',
  }),
  setting('public-key', list('FILE,…', parsePath), {
    help: 'Keys that the receipts must be signed with (PEM). Repeatable. If unset, each chain counts with the key that it names: trust it no more than the directory.',
  }),
  setting('strict', BOOLEAN, { help: 'Treat gaps as failures (exit code 10).' }),
  setting('json', BOOLEAN, { help: 'Print the report as one JSON object.' }),
  HELP,
] as const;

export const RECEIPTS: Command = {
  flags: SETTINGS,
  words: [['verify']],
  help: renderHelp,
  run: verifyReceipts,
};

/** Returns an exit code that the help text lists. Throws config_invalid and receipts_unreadable. */
async function verifyReceipts({ given, io: { stdout, clock } }: Invocation): Promise<number> {
  const { dir, since = '', publicKey = [], strict, json } = valuesOf(SETTINGS, given);
  if (since > new Date(clock.now()).toISOString())
    throw invalid(
      `--since: ${since} lies in the future: there can be no receipts of that day; give one up to today`,
    );
  const directory = receiptsDirectory(dir);
  const report = await checkReceipts(directory, { since, publicKeyFiles: publicKey, strict });
  stdout.write(json ? `${safeJson(report, 2)}\n` : renderReport(report, publicKey.length === 0));
  if (!report.ok) return 10;
  return report.hasCustomRoots ? CUSTOM_ROOTS_EXIT_CODE : 0;
}

/** `isOwn`: the receipts were checked with the keys that they name themselves. */
function renderReport(report: ReceiptsReport, isOwn: boolean): string {
  const { instances, lines, requests, findings } = report;
  const counted = `${plural(requests, 'receipt')} in ${plural(lines, 'signed line')} of ${plural(instances, 'instance')}`;
  const shown = findings.map(({ file, line, message, fails }) => {
    const place = line === 0 ? file : `${file} line ${line}`;
    return `${fails ? '✗' : '-'} ${printable(`${place}: ${message}`)}`;
  });
  return `${[counted, ...shown, conclusion(report, isOwn)].join('\n')}\n`;
}

function conclusion({ ok, lines, publicKeys, hasCustomRoots }: ReceiptsReport, isOwn: boolean): string {
  if (!ok)
    return 'The receipts do NOT hold where marked ✗. Keep a copy of the directory, and find out who could write to it.';
  if (lines === 0) return '! There are no receipts: nothing was checked.';
  const names = publicKeys.map((name) => `SHA-256 ${name}`).join('; ');
  const checkedWith = isOwn
    ? `! Checked with the key that the receipts name (${names}). Whoever can write there can sign them anew: compare it with the copy that you kept, or name that copy with --public-key.`
    : `Checked with the key of --public-key (${names}).`;
  const held = hasCustomRoots
    ? '! Every signature and chain holds, but under custom roots such as those of a simulator: this shows NO genuine AMD or Intel hardware.'
    : `${isOwn ? '' : '✓ '}Every signature and chain holds.`;
  return `${checkedWith}\n${held}`;
}

function renderHelp(): string {
  return helpPage(
    `Checks receipts: every signature, the chain of each instance, and the manifests and records to which they
refer.`,
    ['receipts verify [flags]'],
    [
      section('Flags', SETTINGS),
      section('Exit codes', [
        ['   0', 'Everything holds, but for gaps, which the report lists.'],
        ['  10', 'Something does not hold, or there are no receipts. With --strict, also if there is a gap.'],
        ['  35', 'Everything holds, but under roots other than those of AMD and Intel.'],
        ['   1', 'A flag is wrong, or the receipts cannot be read; "Error: …" says why.'],
      ]),
    ],
  );
}

function parseDay(flag: string, text: string): string {
  if (momentIn(`${text}T00:00:00Z`) === undefined) throw wants(flag, 'a day such as 2026-12-01', text);
  return text;
}
