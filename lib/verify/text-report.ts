/** The verdict for a person: every check in its group, the conclusion, and what to do next. */
import type { Check } from '../attestation/check.ts';
import { CHECK_SECTIONS } from '../attestation/verify.ts';
import { adviceFor, type Circumstances } from './advice.ts';
import { type Judgement, SECRET_EXCHANGE_ROWS } from './judge.ts';
import { OUTCOMES } from './outcome.ts';

/** What was verified, where the manifest comes from, whose roots were trusted. */
export interface Heading {
  readonly subject: string;
  readonly manifestFrom: string;
  readonly rootsFrom: string;
}

/** `columns` is the width of the terminal; undefined where there is none. */
export type TextReport = Circumstances &
  Heading & { readonly colours: boolean; readonly columns: number | undefined };

/** Groups in order, each with the prefixes of its check ids; of several prefixes that fit, the longest decides. */
const GROUPS: Readonly<Record<string, readonly string[]>> = {
  Documents: ['nonce.', 'document.', 'manifest.', 'evidence.'],
  Evidence: ['snp.report', 'tdx.quote.', 'tdx.qe.', 'tdx.policy.report_data'],
  'Certificate chain': [
    'snp.vcek.',
    'snp.product',
    'snp.roots',
    'snp.chain.',
    'snp.crl.',
    'tdx.pck.',
    'tdx.tcb_info.',
    'tdx.qe_identity.',
    'tdx.root_crl.',
    'tdx.pck_crl.',
    'tdx.revocation.',
  ],
  Policy: [''],
  'Secret exchange': ['mesh.', 'secret.'],
};
const LONGEST_FIRST = Object.entries(GROUPS)
  .flatMap(([group, prefixes]) => prefixes.map((prefix) => ({ prefix, group })))
  .sort((a, b) => b.prefix.length - a.prefix.length);

const groupOf = (id: string): string | undefined =>
  LONGEST_FIRST.find(({ prefix }) => id.startsWith(prefix))?.group;

const TITLES = new Map(
  [...CHECK_SECTIONS.flatMap(({ rows }) => rows), ...SECRET_EXCHANGE_ROWS].map((row) => [row.id, row.title]),
);
const titleOf = (id: string): string => TITLES.get(id) ?? id;

const STYLES = { good: 32, bad: 31, plain: 2, bold: 1 } as const;
type Paint = (style: keyof typeof STYLES, text: string) => string;

const MARKS = {
  pass: ['✓', 'good'],
  fail: ['✗', 'bad'],
  'not-applicable': ['–', 'plain'],
  'not-evaluated': ['?', 'plain'],
} as const satisfies Record<Check['outcome'], readonly [string, keyof typeof STYLES]>;

/** Columns for what a check found, where there is no terminal: enough for a SHA-256. */
const ROOM = 72;

const HARDWARE = { snp: 'AMD SEV-SNP', tdx: 'Intel TDX' } as const;

export function renderText(judgement: Judgement, report: TextReport): string {
  const paint: Paint = (style, text) => (report.colours ? `\u001b[${STYLES[style]}m${text}\u001b[0m` : text);
  const { checks } = judgement;
  const width = Math.max(0, ...checks.map(({ id }) => titleOf(id).length));
  const groups = Object.keys(GROUPS).flatMap((group) => {
    const members = checks.filter(({ id }) => groupOf(id) === group);
    if (members.length === 0) return [];
    const lines = runsOf(members).flatMap((run) =>
      checkLines(run, { paint, width, columns: report.columns }),
    );
    return [[paint('bold', group), ...lines].join('\n')];
  });
  return `${[heading(judgement, report), ...groups, conclusion(judgement, report, paint)].join('\n\n')}\n`;
}

function heading({ outcome, tee, manifestSha256, at }: Judgement, report: Heading): string {
  const rows: readonly (readonly [string, string | undefined])[] = [
    [outcome === 'accepted' ? 'Verified' : 'Subject', report.subject],
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
  { paint, width, columns }: { paint: Paint; width: number; columns: number | undefined },
): readonly string[] {
  const { id, outcome, expected, found, source, code } = check;
  const [mark, style] = MARKS[outcome];
  const start = `  ${paint(style, mark)} `;
  if (more.length > 0) {
    const why = outcome === 'not-applicable' ? 'do not apply' : 'could not be made';
    return [`${start}${more.length + 1} checks ${why}: ${printable(found)}`];
  }
  if (outcome !== 'fail') {
    const room = columns === undefined ? ROOM : Math.max(20, columns - width - 6);
    return [`${start}${titleOf(id).padEnd(width)}  ${paint('plain', shortened(printable(found), room))}`];
  }
  return [
    `${start}${paint('bad', titleOf(id))}`,
    `      expected  ${printable(expected)}`,
    `      found     ${printable(found)}`,
    `      check     ${id} (${source}), ${code}`,
  ];
}

function conclusion(judgement: Judgement, report: TextReport, paint: Paint): string {
  const { outcome, failure, checks, roots } = judgement;
  const { word, meaning } = OUTCOMES[outcome];
  const count = (wanted: Check['outcome']): number =>
    checks.filter((check) => check.outcome === wanted).length;
  const counts = [
    `${count('pass')} passed`,
    `${count('fail')} failed`,
    `${count('not-applicable')} did not apply`,
    `${count('not-evaluated')} could not be made`,
  ].filter((part) => !part.startsWith('0 '));
  const caveat = outcome === 'accepted' && roots === 'custom' ? ' under roots that are not the vendors’' : '';
  const lines = [`${paint(outcome === 'accepted' ? 'good' : 'bad', word)}${caveat}: ${meaning}.`];
  if (counts.length > 0) lines.push(`${checks.length} checks: ${counts.join(', ')}.`);
  if (failure !== undefined) {
    const { check, error } = failure;
    const what = check === undefined ? error.message : `${titleOf(check.id)} (${check.id})`;
    lines.push(`Reason: ${printable(what)} [${error.code}]`);
  }
  return [...lines, adviceFor(judgement, report)].join('\n');
}

/** Findings quote what the remote sent, which must not steer a terminal. */
function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu, '\ufffd');
}

function shortened(text: string, room: number): string {
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}
