/** `privatemode-proxy receipts verify`: command line in, report out, exit code by what was found (docs/receipts.md). */
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, setting, text, valuesOf } from '../config/setting.ts';
import { parsePath, wants } from '../config/values.ts';
import { plural, printable, safeJson } from '../text.ts';
import { checkReceipts, type ReceiptsReport } from '../transparency/check-receipts.ts';
import { receiptsDirectory } from '../transparency/receipt-files.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/outcome.ts';
import { type Asked, type Command, HELP } from './command.ts';

const SETTINGS = [
  setting('dir', text('DIR', parsePath), {
    default: 'receipts',
    help: 'Directory of the receipts, which is receipts in the workspace of the proxy, or that workspace.',
  }),
  setting('since', text('YYYY-MM-DD', parseDay), {
    help: 'Skip the files of earlier days (UTC). If they are missing, a gap is listed.',
  }),
  setting('public-key', text('FILE', parsePath), {
    help: 'Key that the receipts must be signed with (PEM). If unset, public.pem in the directory: trust it no more than the directory.',
  }),
  setting('strict', BOOLEAN, { help: 'Treat gaps as failures (exit code 10).' }),
  setting('json', BOOLEAN, { help: 'Print the report as one JSON object.' }),
  HELP,
] as const;

const EXIT_CODES = { sound: 0, defective: 10, customRoots: CUSTOM_ROOTS_EXIT_CODE } as const;

export const RECEIPTS: Command = {
  flags: SETTINGS,
  words: [['verify']],
  help: renderHelp,
  run: verifyReceipts,
};

/** Gives an exit code of EXIT_CODES. Throws config_invalid and receipts_unreadable. */
async function verifyReceipts({ given, io: { stdout } }: Asked): Promise<number> {
  const { dir, since, publicKey, strict, json } = valuesOf(SETTINGS, given);
  const directory = await receiptsDirectory(dir);
  const report = await checkReceipts(directory, { since, publicKeyFile: publicKey, strict });
  stdout.write(json ? `${safeJson(report, 2)}\n` : renderReport(report));
  if (!report.ok) return EXIT_CODES.defective;
  return report.customRoots === undefined ? EXIT_CODES.sound : EXIT_CODES.customRoots;
}

function renderReport(report: ReceiptsReport): string {
  const { ok, instances, lines, requests, refused = {}, findings, customRoots = [] } = report;
  const counted = `${plural(requests, 'receipt')} in ${plural(lines, 'line')} of ${plural(instances, 'instance')}`;
  const sums = Object.entries(refused).map(([code, count]) => `${count} ${code}`);
  const refusals = sums.length === 0 ? [] : [`Refused and only counted: ${sums.join(', ')}`];
  const shown = findings.map(({ file, line, message, fails }) => {
    const place = line === 0 ? file : `${file} line ${line}`;
    return `${fails ? '✗' : '-'} ${printable(`${place}: ${message}`)}`;
  });
  const foreign = customRoots.map(
    ({ verdictSha256, file, line }) =>
      `! ${printable(file)} line ${line}: its verdict ${verdictSha256} trusts custom roots, not those of AMD and Intel`,
  );
  const { sha256, source } = report.publicKey;
  const isOwn = source === 'directory';
  const checkedWith = isOwn
    ? `! Checked with the key of this directory (SHA-256 ${sha256}), which whoever can write there can replace: compare it with the copy that you kept, or name that with --public-key.`
    : `Checked with the key of --public-key (SHA-256 ${sha256}).`;
  const sound =
    customRoots.length > 0
      ? '! Every signature, chain and verdict holds, but under custom roots such as those of a simulator: this shows NO genuine AMD or Intel hardware.'
      : `${isOwn ? '' : '✓ '}Every signature, chain and verdict holds.`;
  const held = lines === 0 ? '! There are no receipts: nothing was checked.' : sound;
  const verdict = ok
    ? held
    : 'The receipts do NOT hold where marked ✗. Keep a copy of the directory, and find out who could write to it.';
  const about = ok && lines > 0 ? [checkedWith] : [];
  return `${[counted, ...refusals, ...shown, ...foreign, ...about, verdict].join('\n')}\n`;
}

function renderHelp(): string {
  return helpPage(
    'Checks receipts: every signature, the chain of each instance, and the verdicts to which the receipts refer.',
    ['receipts verify [flags]'],
    [
      section('Flags', SETTINGS),
      section('Exit codes', [
        [
          '   0',
          'Everything holds. The report lists gaps (an instance that was killed or is still running; skipped days whose files are missing) and files that are no receipts.',
        ],
        [
          '  10',
          'A line is missing, changed or out of order, a verdict is wrong, or there are no receipts. With --strict, also if there is a gap.',
        ],
        ['  35', 'Everything holds, but some verdicts trust roots other than those of AMD and Intel.'],
        ['   1', 'A flag is wrong, or the receipts cannot be read; "Error: …" says why.'],
      ]),
    ],
  );
}

function parseDay(flag: string, text: string): string {
  const isDay = /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text));
  if (!isDay) throw wants(flag, 'a day such as 2026-12-01', text);
  return text;
}
