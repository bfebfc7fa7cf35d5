/** `privatemode-proxy receipts verify` and `receipts rotate-key` (docs/receipts.md). */
import { dirname, join, resolve } from 'node:path';
import { helpPage, section } from '../config/help.ts';
import { BOOLEAN, list, setting, text, valuesOf } from '../config/setting.ts';
import { beyondMonth, invalid, parsePath, wants } from '../config/values.ts';
import { isDirectory } from '../files/make-directory.ts';
import { checkReceipts, type ReceiptsReport } from '../receipts/check-receipts.ts';
import { receiptsDirectory } from '../receipts/receipt-files.ts';
import { rotateReceiptKey } from '../receipts/receipt-log.ts';
import { plural, printable, safeJson } from '../text.ts';
import { CUSTOM_ROOTS_EXIT_CODE } from '../verdict/verdict.ts';
import { VERSION } from '../version.ts';
import { type Command, HELP, type Invocation } from './command.ts';

const SETTINGS = [
  setting('dir', text('DIR', parsePath), {
    default: 'receipts',
    bare: 'a directory is given as --dir DIR',
    help: 'Directory of the receipts, which is receipts in the workspace of the proxy, or that workspace.',
  }),
  setting('since', text('YYYY-MM-DD', parseDay), {
    help: 'For verify: skip the files of earlier days (UTC). If they are missing, a gap is listed.',
  }),
  setting('public-key', list('FILE,…', parsePath), {
    help: 'For verify: keys that the receipts must be signed with (PEM), and those that they name as the next. Repeatable. If unset, the keys in the directory: trust them no more than the directory.',
  }),
  setting('strict', BOOLEAN, { help: 'For verify: treat gaps as failures (exit code 10).' }),
  setting('json', BOOLEAN, { help: 'For verify: print the report as one JSON object.' }),
  HELP,
] as const;

const EXIT_CODES = { sound: 0, defective: 10, customRoots: CUSTOM_ROOTS_EXIT_CODE } as const;

export const RECEIPTS: Command = {
  flags: SETTINGS,
  words: [['verify'], ['rotate-key']],
  help: renderHelp,
  run: (asked) => (asked.words[0] === 'verify' ? verifyReceipts(asked) : rotateKey(asked)),
};

/** Returns an exit code of EXIT_CODES. Throws config_invalid and receipts_unreadable. */
async function verifyReceipts({ given, io: { stdout, clock } }: Invocation): Promise<number> {
  const { dir, since, publicKey, strict, json } = valuesOf(SETTINGS, given);
  const today = new Date(clock.now()).toISOString().slice(0, 10);
  if (since !== undefined && since > today)
    throw invalid(
      `--since: ${since} lies in the future: there can be no receipts of that day; give one up to today`,
    );
  const directory = await receiptsDirectory(dir);
  const report = await checkReceipts(directory, { since, publicKeyFiles: publicKey, strict });
  stdout.write(json ? `${safeJson(report, 2)}\n` : renderReport(report, strict));
  if (!report.ok) return EXIT_CODES.defective;
  return report.customRoots === undefined ? EXIT_CODES.sound : EXIT_CODES.customRoots;
}

/** Returns 0. Throws config_invalid and receipts_unavailable. */
async function rotateKey({ given, io: { stdout, clock } }: Invocation): Promise<number> {
  const stray = [...given.values.keys()].find((name) => name !== 'dir');
  if (stray !== undefined) throw invalid(`--${stray} is for receipts verify; rotate-key takes --dir only`);
  const directory = resolve(await receiptsDirectory(valuesOf(SETTINGS, given).dir));
  const workspace = dirname(directory);
  if (!(await isDirectory(directory)) || join(workspace, 'receipts') !== directory)
    throw invalid(`--dir: ${directory} is no directory of receipts; name the workspace of the proxy`);
  const { before, next } = await rotateReceiptKey({ workspace, version: VERSION, clock });
  stdout.write(
    `The key of ${directory} is now ${next}. The previous key, ${before}, has signed the new one as its successor.\n` +
      'Keep a copy of public.pem elsewhere. A running proxy signs with the previous key until you restart it.\n',
  );
  return 0;
}

function renderReport(report: ReceiptsReport, strict: boolean): string {
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
  const used = report.publicKeys.filter((key) => key.instances > 0);
  const isOwn = used.some(({ source }) => source === 'directory');
  const names = used.map(({ sha256, source }) => `SHA-256 ${sha256}${ORIGINS[source]}`).join('; ');
  const checkedWith = isOwn
    ? `! Checked with the key of this directory (${names}). Whoever can write there can replace that key: compare it with the copy that you kept, or name that copy with --public-key.`
    : `Checked with the key of --public-key (${names}).`;
  const sound =
    customRoots.length > 0
      ? '! Every signature, chain and verdict holds, but under custom roots such as those of a simulator: this shows NO genuine AMD or Intel hardware.'
      : `${isOwn ? '' : '✓ '}Every signature, chain and verdict holds.`;
  const held = instances === 0 ? '! There are no receipts: nothing was checked.' : sound;
  const failing = findings.filter(({ fails }) => fails);
  const isIncomplete = strict && failing.every(({ kind, file }) => kind === 'missing' && file !== '.');
  const verdict = ok
    ? held
    : `The receipts do NOT hold where marked ✗. Keep a copy of the directory, and find out who could write to it.${
        isIncomplete
          ? ' Only lines are missing: an instance that is still running, or was killed, leaves such gaps, and --strict counts them as failures.'
          : ''
      }`;
  const about = ok && instances > 0 ? [checkedWith] : [];
  return `${[counted, ...refusals, ...shown, ...foreign, ...about, verdict].join('\n')}\n`;
}

const ORIGINS = { directory: '', given: '', rotated: ', which the one before names as the next' } as const;

function renderHelp(): string {
  return helpPage(
    `Checks receipts: every signature, the chain of each instance, and the verdicts and manifests to which they
refer. rotate-key gives the workspace a new key, and has the old one sign that it follows.`,
    ['receipts verify [flags]', 'receipts rotate-key [--dir DIR]'],
    [
      section('Flags', SETTINGS),
      section('Exit codes', [
        [
          '   0',
          'Everything holds. The report lists gaps (an instance that was killed or is still running; skipped days whose files are missing; lines that waited for the disk over midnight) and files that are no receipts.',
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
  const problem = beyondMonth(text);
  if (!isDay || problem !== undefined) throw wants(flag, 'a day such as 2026-12-01', text, problem);
  return text;
}
