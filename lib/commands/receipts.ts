/** `privatemode-proxy receipts verify`: command line in, report out, exit code by what was found (docs/receipts.md). */
import { parseArgv } from '../config/argv.ts';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, setting, text, valuesOf } from '../config/setting.ts';
import { invalid, parsePath, wants } from '../config/values.ts';
import { printable } from '../text.ts';
import { checkReceipts, type ReceiptsReport } from '../transparency/check-receipts.ts';
import { safeJson } from '../verdict/json.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/outcome.ts';

const SETTINGS = [
  setting('dir', text('DIR', parsePath), {
    default: 'receipts',
    help: 'Directory of the receipts: receipts in the workspace of the proxy.',
  }),
  setting('since', text('YYYY-MM-DD', parseDay), {
    help: 'Leave out the files of earlier days (UTC). Where they are gone, a gap is listed.',
  }),
  setting('public-key', text('FILE', parsePath), {
    help: 'Key that the receipts must be signed with (PEM). If unset, public.pem in the directory, which is as trustworthy as the directory is.',
  }),
  setting('strict', BOOLEAN, { help: 'Take gaps for failures, too (exit code 10).' }),
  setting('json', BOOLEAN, { help: 'Print the report as one JSON object.' }),
  setting('help', BOOLEAN, { short: 'h', help: 'Print this help.' }),
] as const;

const EXIT_CODES = { sound: 0, defective: 10, customRoots: CUSTOM_ROOTS_EXIT_CODE } as const;

/** Gives an exit code of EXIT_CODES. Throws config_invalid and receipts_unreadable, which the caller prints. */
export async function runReceipts(
  [command, ...argv]: readonly string[],
  { stdout }: { readonly stdout: { write(text: string): unknown } },
): Promise<number> {
  const wantsHelp = command === '--help' || command === '-h';
  if (!wantsHelp && command !== 'verify')
    throw invalid('receipts takes one command: receipts verify (see receipts --help)');
  const { dir, since, publicKey, strict, json, help } = valuesOf(SETTINGS, parseArgv(argv, SETTINGS));
  if (wantsHelp || help) {
    stdout.write(renderHelp());
    return 0;
  }
  const report = await checkReceipts(dir, { since, publicKeyFile: publicKey, strict });
  stdout.write(json ? `${safeJson(report, 2)}\n` : renderReport(report, strict));
  if (!report.ok) return EXIT_CODES.defective;
  return report.customRoots === undefined ? EXIT_CODES.sound : EXIT_CODES.customRoots;
}

function renderReport(report: ReceiptsReport, strict: boolean): string {
  const { ok, instances, lines, requests, refused = {}, findings, customRoots = [] } = report;
  const many = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;
  const counted = `${many(requests, 'receipt')} in ${many(lines, 'line')} of ${many(instances, 'instance')}`;
  const sums = Object.entries(refused).map(([code, count]) => `${count} ${code}`);
  const refusals = sums.length === 0 ? [] : [`Refused and only counted: ${sums.join(', ')}`];
  const shown = findings.map(({ kind, file, line, message }) => {
    const isHarmless = kind === 'junk' || (kind === 'gap' && !strict);
    const place = line === 0 ? file : `${file} line ${line}`;
    return `${isHarmless ? '-' : '✗'} ${printable(`${place}: ${message}`)}`;
  });
  const foreign = customRoots.map(
    ({ verdictSha256, file, line }) =>
      `! ${printable(file)} line ${line}: its verdict ${verdictSha256} trusts custom roots, not those of AMD and Intel`,
  );
  const sound =
    customRoots.length === 0
      ? '✓ Every signature, chain and verdict holds.'
      : '! Every signature, chain and verdict holds, but under custom roots such as those of a simulator: this shows NO genuine AMD or Intel hardware.';
  const verdict = ok ? sound : 'The receipts do NOT hold.';
  return `${[counted, ...refusals, ...shown, ...foreign, verdict].join('\n')}\n`;
}

function renderHelp(): string {
  return helpPage(
    'Checks receipts: every signature, the chain of each instance, and the verdicts that the receipts point to.',
    ['receipts verify [flags]'],
    [
      section('Flags', SETTINGS),
      section('Exit codes', [
        [
          '   0',
          'Everything holds. Gaps are listed: an instance that was killed, or that runs still; days that were left out and are gone. So is what is no receipt.',
        ],
        [
          '  10',
          'A line is missing, changed or out of order, or a verdict is not what it should be. With --strict: or there is a gap.',
        ],
        ['  35', 'Everything holds, but verdicts trust roots that are not those of AMD and Intel.'],
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
