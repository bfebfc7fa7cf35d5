/**
 * The verdict for a person: the result and what to do, then the chain of trust, and at the end what it does
 * not prove.
 */
import type { Check } from '../attestation/check.ts';
import { type Paint, painter, plural, printable } from '../text.ts';
import { adviceFor, type Circumstances } from './advice.ts';
import { chainOfTrust, linkLine, linkOf } from './chain-of-trust.ts';
import { MEANINGS, titleOf } from './checks.ts';
import { OUTCOMES } from './outcome.ts';
import type { Verdict } from './verdict.ts';

/** The remote, the source of the manifest, and the trusted roots. */
export interface Heading {
  readonly subject: string;
  readonly manifestFrom: string;
  readonly rootsFrom: string;
  /** The digest that names a saved exchange, as receipts do. */
  readonly exchange?: string | undefined;
}

export type TextReport = Circumstances &
  Heading & {
    readonly colours: boolean;
    /** The width of the terminal; undefined where there is none. */
    readonly columns: number | undefined;
    /** Whether to print each check below its link. */
    readonly verbose: boolean;
  };

/** The content of a verification report: the verdict, and the circumstances of the verification. */
export interface Verified {
  readonly verdict: Verdict;
  readonly report: Circumstances & Heading;
  /** For stderr, before the report; may be empty. */
  readonly warning: string;
  /** Saves the exchange after the report. Resolves with a line for stderr. */
  readonly keep?: () => Promise<string>;
}

export const rootsFrom = (directory: string | undefined): string =>
  directory === undefined ? 'AMD and Intel, built in' : `${directory}, NOT those of AMD and Intel`;

/** The warning about the roots in the directory that `flag` names; empty without one. */
export function foreignRoots(flag: string, directory: string | undefined): string {
  if (directory === undefined) return '';
  return `
!! WARNING: ${flag} ${directory}
!! The built-in hardware roots of AMD and Intel are not used. Whoever holds the keys of these roots can make
!! evidence that is accepted, without any protected hardware.

`;
}

const MARKS = {
  pass: { mark: '✓', style: 'good', counted: 'passed' },
  fail: { mark: '✗', style: 'bad', counted: 'failed' },
  'not-applicable': { mark: '–', style: 'plain', counted: 'did not apply' },
  'not-evaluated': { mark: '?', style: 'plain', counted: 'could not be made' },
} as const satisfies Record<Check['outcome'], object>;

/** Columns for the text that a check found, if there is no terminal: enough for a SHA-256. */
const ROOM = 72;

const HARDWARE = { snp: 'AMD SEV-SNP', tdx: 'Intel TDX' } as const;

/** The text, ending with a line feed. Control characters in texts of the remote are escaped. */
export function renderText(verdict: Verdict, report: TextReport): string {
  const paint = painter(report.colours);
  const parts = [
    `${result(verdict, paint)}\n${adviceFor(verdict, report)}`,
    failedCheck(verdict, paint),
    subject(verdict, report),
    chain(verdict, report, paint),
    notProven(verdict, report),
  ];
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}

/** The outcome, and how many checks the verdict is made of. */
function result({ outcome, checks, roots, outlived }: Verdict, paint: Paint): string {
  const { word, meaning } = outlived === undefined ? OUTCOMES[outcome] : notJudgedAt(outlived);
  const isCustom = (outcome === 'accepted' || outlived !== undefined) && roots === 'custom';
  const caveat = isCustom ? ' under custom roots' : '';
  const [style, mark] =
    outcome !== 'accepted'
      ? (['bad', '✗'] as const)
      : isCustom
        ? (['caution', '!'] as const)
        : (['good', '✓'] as const);
  const counts = Object.entries(MARKS).flatMap(([wanted, { counted }]) => {
    const count = checks.filter((check) => check.outcome === wanted).length;
    return count === 0 ? [] : [`${count} ${counted}`];
  });
  const counted = counts.length === 0 ? '' : `\n${plural(checks.length, 'check')}: ${counts.join(', ')}.`;
  return `${paint(style, `${mark} ${word}`)}${caveat}: ${meaning}.${counted}`;
}

const notJudgedAt = (end: Date) => ({
  word: 'NOT JUDGED at this time',
  meaning: `the collateral was in force until ${end.toISOString()}, and every check that applies held then`,
});

/**
 * The check that failed, why it matters, and what was expected and found. If the failure is no check, its
 * reason. Empty if nothing failed.
 */
function failedCheck({ checks, failure, roots }: Verdict, paint: Paint): string {
  if (failure === undefined) return '';
  const { check, error } = failure;
  if (check === undefined) return `Reason: ${printable(error.message)} [${error.code}]`;
  const { id, expected, found, source } = check;
  const link = chainOfTrust(checks, roots).find((each) => each.id === linkOf(id));
  const why = MEANINGS.get(id) ?? link?.meaning;
  return [
    paint('bad', `✗ ${titleOf(id)}`),
    ...(why === undefined ? [] : [`  why it matters  ${why}`]),
    `  expected        ${printable(expected)}`,
    `  found           ${printable(found)}`,
    `  check           ${id} (${source}) [${error.code}]`,
  ].join('\n');
}

function subject({ tee, manifestSha256, at }: Verdict, report: Heading): string {
  const rows: readonly (readonly [string, string | undefined])[] = [
    ['Subject', report.subject],
    ['Hardware', tee && HARDWARE[tee]],
    ['Manifest', report.manifestFrom],
    ['', manifestSha256 && `SHA-256 ${manifestSha256}`],
    ['Roots', report.rootsFrom],
    ['Exchange', report.exchange && `SHA-256 ${report.exchange}`],
    ['Time', at.toISOString()],
  ];
  return rows
    .flatMap(([name, value]) => (value === undefined ? [] : [`${name.padEnd(10)}${printable(value)}`]))
    .join('\n');
}

/** The five links, each with its meaning. With `verbose`, the checks of a link stand below it. */
function chain({ checks, roots }: Verdict, { columns, verbose }: TextReport, paint: Paint): string {
  if (checks.length === 0) return '';
  const width = Math.max(...checks.map(({ id }) => titleOf(id).length));
  const room = columns === undefined ? ROOM : Math.max(20, columns - width - 8);
  const links = chainOfTrust(checks, roots);
  const lines = links.flatMap((link) => {
    const line = linkLine(link, roots, paint);
    if (!verbose) return [line];
    const runs = runsOf(checks.filter((check) => linkOf(check.id) === link.id));
    return [line, ...runs.map((run) => checkLine(run, { paint, width, room })), ''];
  });
  const more = verbose ? [] : ['', 'Each check: --verbose, or --json for a program.'];
  return [paint('bold', 'Chain of trust'), ...lines, ...more].join('\n').trimEnd();
}

const NOT_PROVEN = [
  'that the listed software is good: only its publisher, and you, can judge it',
  'anything about the GPU: the server checks that itself, by software which the manifest lists',
] as const;

/** What even an accepted verdict does not prove (docs/verification.md). */
function notProven({ outcome, roots, outlived }: Verdict, { mode }: Circumstances): string {
  if (outcome !== 'accepted' && outlived === undefined) return '';
  const lines = [
    ...(roots === 'custom' ? ['anything about real hardware: other roots were trusted'] : []),
    ...NOT_PROVEN,
    ...(mode === 'offline' ? ['when the evidence was made: only that its dates were in force'] : []),
  ];
  return ['This does not prove', ...lines.map((line) => `  - ${line}`)].join('\n');
}

/** Joins neighbours that share one line: checks that were neither passed nor failed, for the same reason. */
function runsOf(checks: readonly Check[]): readonly (readonly [Check, ...Check[]])[] {
  const runs: [Check, ...Check[]][] = [];
  for (const check of checks) {
    const run = runs.at(-1);
    const judged = check.outcome === 'pass' || check.outcome === 'fail';
    if (!judged && run?.[0].outcome === check.outcome && run[0].found === check.found) run.push(check);
    else runs.push([check]);
  }
  return runs;
}

function checkLine(
  [check, ...more]: readonly [Check, ...Check[]],
  { paint, width, room }: { readonly paint: Paint; readonly width: number; readonly room: number },
): string {
  const { id, outcome, expected, found } = check;
  const { mark, style, counted } = MARKS[outcome];
  const start = `    ${paint(style, mark)} `;
  if (more.length > 0) {
    const why = outcome === 'not-applicable' ? 'do not apply' : counted;
    return `${start}${more.length + 1} checks ${why}: ${printable(found)}`;
  }
  if (outcome === 'fail')
    return `${start}${paint('bad', titleOf(id))}: expected ${printable(expected)}; found ${printable(found)}`;
  return `${start}${titleOf(id).padEnd(width)}  ${paint('plain', shortened(printable(found), room))}`;
}

const shortened = (text: string, room: number): string =>
  text.length <= room ? text : `${text.slice(0, room - 1)}…`;
