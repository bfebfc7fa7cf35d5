/** The verdict for a person: every check below its heading, the conclusion, and what to do next. */
import type { Check } from '../attestation/check.ts';
import { type Paint, painter, plural, printable } from '../text.ts';
import { adviceFor, type Circumstances } from './advice.ts';
import { HEADINGS, MEANINGS, placeOf, titleOf } from './checks.ts';
import { OUTCOMES } from './outcome.ts';
import type { Judgement } from './verdict.ts';

/** The remote, the source of the manifest, and the trusted roots. */
export interface Heading {
  readonly subject: string;
  readonly manifestFrom: string;
  readonly rootsFrom: string;
}

/** `columns` is the width of the terminal; undefined where there is none. */
export type TextReport = Circumstances &
  Heading & { readonly colours: boolean; readonly columns: number | undefined };

/** The content of a verification report: the judgement and its circumstances. */
export interface Verified {
  readonly judgement: Judgement;
  readonly report: Circumstances & Heading;
  /** For stderr, before the report; may be empty. */
  readonly warning: string;
  /** Keeps the exchange after the report; gives a line for stderr. */
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

/** Columns for what a check found, where there is no terminal: enough for a SHA-256. */
const ROOM = 72;

const HARDWARE = { snp: 'AMD SEV-SNP', tdx: 'Intel TDX' } as const;

export function renderText(judgement: Judgement, report: TextReport): string {
  const paint = painter(report.colours);
  const { checks } = judgement;
  const width = Math.max(0, ...checks.map(({ id }) => titleOf(id).length));
  const room = report.columns === undefined ? ROOM : Math.max(20, report.columns - width - 6);
  const members = Map.groupBy(checks, ({ id }) => placeOf(id)?.heading);
  const groups = HEADINGS.flatMap((group) => {
    const lines = runsOf(members.get(group) ?? []).flatMap((run) => checkLines(run, { paint, width, room }));
    return lines.length === 0 ? [] : [paint('bold', group), ...lines].join('\n');
  });
  return `${[heading(judgement, report), ...groups, conclusion(judgement, report, paint)].join('\n\n')}\n`;
}

function heading({ outcome, roots, tee, manifestSha256, at }: Judgement, report: Heading): string {
  const rows: readonly (readonly [string, string | undefined])[] = [
    [outcome === 'accepted' && roots === 'vendor' ? 'Verified' : 'Subject', report.subject],
    ['Hardware', tee && HARDWARE[tee]],
    ['Manifest', report.manifestFrom],
    ['', manifestSha256 && `SHA-256 ${manifestSha256}`],
    ['Roots', report.rootsFrom],
    ['Time', at.toISOString()],
  ];
  return rows
    .flatMap(([name, value]) => (value === undefined ? [] : [`${name.padEnd(10)}${printable(value)}`]))
    .join('\n');
}

/** Joins neighbours that were not judged for the same reason; they share one line. */
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

function checkLines(
  [check, ...more]: readonly [Check, ...Check[]],
  { paint, width, room }: { paint: Paint; width: number; room: number },
): readonly string[] {
  const { id, outcome, expected, found, source, code } = check;
  const { mark, style } = MARKS[outcome];
  const start = `  ${paint(style, mark)} `;
  if (more.length > 0) {
    const why = outcome === 'not-applicable' ? 'do not apply' : MARKS[outcome].counted;
    return [`${start}${more.length + 1} checks ${why}: ${printable(found)}`];
  }
  if (outcome !== 'fail') {
    return [`${start}${titleOf(id).padEnd(width)}  ${paint('plain', shortened(printable(found), room))}`];
  }
  const meaning = MEANINGS.get(id);
  return [
    `${start}${paint('bad', titleOf(id))}`,
    `      expected  ${printable(expected)}`,
    `      found     ${printable(found)}`,
    ...(meaning === undefined ? [] : [`      meaning   ${meaning}`]),
    `      check     ${id} (${source}), ${code}`,
  ];
}

function conclusion(judgement: Judgement, report: TextReport, paint: Paint): string {
  const { outcome, failure, checks, roots, outlived } = judgement;
  const { word, meaning } = outlived === undefined ? OUTCOMES[outcome] : notJudgedAt(outlived);
  const counts = Object.entries(MARKS).flatMap(([wanted, { counted }]) => {
    const count = checks.filter((check) => check.outcome === wanted).length;
    return count === 0 ? [] : [`${count} ${counted}`];
  });
  const holds = outcome === 'accepted' || outlived !== undefined;
  const caveat = holds && roots === 'custom' ? ' under roots that are not the vendors’' : '';
  const lines = [`${paint(outcome === 'accepted' ? 'good' : 'bad', word)}${caveat}: ${meaning}.`];
  if (counts.length > 0) lines.push(`${plural(checks.length, 'check')}: ${counts.join(', ')}.`);
  if (failure !== undefined) {
    const { check, error } = failure;
    const what =
      check === undefined ? `Reason: ${error.message}` : `Failed check: ${titleOf(check.id)} (${check.id})`;
    lines.push(`${printable(what)} [${error.code}]`);
  }
  return [...lines, adviceFor(judgement, report)].join('\n');
}

const notJudgedAt = (end: Date) => ({
  word: 'NOT JUDGED at this time',
  meaning: `the collateral was in force until ${end.toISOString()}, and every check that applies held then`,
});

const shortened = (text: string, room: number): string =>
  text.length <= room ? text : `${text.slice(0, room - 1)}…`;
