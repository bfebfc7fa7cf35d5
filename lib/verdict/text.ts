/**
 * The verdict for a person: the result and what to do, then the chain of trust, and at the end what it does
 * not prove.
 */
import { checksAbout } from '../attestation/verify-evidence.ts';
import type { ErrorCode } from '../errors.ts';
import { type Paint, painter, plural, printable } from '../text.ts';
import { chainOfTrust, linkLine, linkOf, titleOf } from './chain-of-trust.ts';
import { errorOf, OUTCOMES, type Verdict } from './verdict.ts';

type Check = Verdict['checks'][number];

/** The circumstances of a verification, and how to show it. */
export interface TextReport {
  /** `managed`, `static`: of the live service, by the published manifest or a given one. `record`: of a record. */
  readonly mode: 'managed' | 'static' | 'record';
  /** Whether --save keeps the exchange. */
  readonly saved: boolean;
  /** Whether --at named the moment to judge by. */
  readonly atGiven: boolean;
  /** The remote, the source of the manifest, the trusted roots, and the digest that names a record. */
  readonly rows: Readonly<Record<'Subject' | 'Manifest' | 'Roots', string>> & { readonly Exchange?: string };
  readonly colours: boolean;
  /** Whether to print each check below its link. */
  readonly verbose: boolean;
}

/** A verification: its verdict, the circumstances, and what to say beside it. */
export interface Verified {
  readonly verdict: Verdict;
  readonly report: Omit<TextReport, 'colours' | 'verbose'>;
  /** For stderr, before the report; may be empty. */
  readonly warning: string;
  /** Saves the exchange after the report. Resolves with a line for stderr. */
  readonly keep?: () => Promise<string>;
}

/** The warning that `where` names other roots than those of AMD and Intel. */
export const foreignRoots = (where: string): string => `
!! WARNING: ${where}
!! The built-in hardware roots of AMD and Intel are not used. Whoever holds the keys of these roots can make
!! evidence that is accepted, without any protected hardware.

`;

const MARKS = {
  pass: ['good', '✓', 'passed'],
  fail: ['bad', '✗', 'failed'],
  'not-applicable': ['plain', '–', 'did not apply'],
  'not-evaluated': ['plain', '?', 'could not be made'],
} as const satisfies Record<Check['outcome'], object>;

const HARDWARE = { snp: 'AMD SEV-SNP', tdx: 'Intel TDX' } as const;

const REPORT_DATA =
  'Report data bind nonce, manifest, root CA and mesh CA: the evidence answers another nonce, or one of the other three was exchanged.';

/** The text, ending with a line feed. Control characters in texts of the remote are escaped. */
export function renderText(verdict: Verdict, report: TextReport): string {
  const paint = painter(report.colours);
  const parts = [
    `${result(verdict, paint)}\n${adviceFor(verdict, report)}`,
    failedCheck(verdict, paint),
    heading(verdict, report),
    chain(verdict, report, paint),
    notProven(verdict, report),
  ];
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}

/** The outcome, and how many checks the verdict is made of. */
function result({ outcome, checks, roots }: Verdict, paint: Paint): string {
  const { word, meaning } = OUTCOMES[outcome];
  const isCustom = outcome === 'accepted' && roots === 'custom';
  const [style, mark] = isCustom
    ? (['caution', '!'] as const)
    : MARKS[outcome === 'accepted' ? 'pass' : 'fail'];
  const counts = Object.entries(MARKS).flatMap(([wanted, [, , counted]]) => {
    const { length } = checks.filter((check) => check.outcome === wanted);
    return length === 0 ? [] : [`${length} ${counted}`];
  });
  const counted = counts.length === 0 ? '' : `\n${plural(checks.length, 'check')}: ${counts.join(', ')}.`;
  return `${paint(style, `${mark} ${word}`)}${isCustom ? ' under custom roots' : ''}: ${meaning}.${counted}`;
}

const MEANING = {
  managed:
    'A proxy started with the same flags encrypts for a deployment under the manifest that the publisher then names; now that is this one. What it runs is what the manifest names. To pin it, use --manifest-path.',
  static:
    'A proxy started with the same flags encrypts for this deployment and for no other. What it runs is what the manifest names.',
  record:
    'The dates were in force at the time below; when the evidence was made is not shown. What the deployment ran is what the manifest names: compare its SHA-256 with one you trust.',
} as const;

/** What to do about a failure, where the remedy of its error does not say it. */
const ADVICE: Readonly<Partial<Record<ErrorCode, string>>> = {
  attestation_failed: 'Do not send anything to this remote.',
  evidence_malformed:
    'Do not trust this response: it is not what a coordinator sends. If it persists, report it.',
  manifest_mismatch:
    'The deployment runs under another manifest than yours. If the service was updated, get its current manifest, read what changed, and verify against that.',
  manifest_unsupported:
    'Update privatemode-proxy: the manifest may be in order, but this version cannot tell.',
  collateral_unavailable:
    'Nothing is proved either way. Check that the hosts of AMD or Intel can be reached (docs/network.md names them), and try again.',
};
const ROLLOUT =
  'The service publishes one manifest and runs under another. During an update that passes within minutes; else report it.';

/** What to do next, or what an accepted verdict means. */
function adviceFor(verdict: Verdict, { mode, saved, atGiven }: TextReport): string {
  const error = errorOf(verdict);
  if (error === undefined) {
    return verdict.roots === 'custom'
      ? 'The roots are not those of AMD and Intel: this says nothing about real hardware.'
      : MEANING[mode];
  }
  const { code, remedy, detail } = error;
  if (detail?.newer) return remedy;
  if (mode === 'record') {
    if (code === 'manifest_unsupported' || verdict.failure?.id === null) return ADVICE[code] ?? remedy;
    const by = atGiven ? ' If --at is not when it was made, leave it out: the record states a time.' : '';
    return `Do not trust any deployment on this evidence.${by}`;
  }
  const proof = saved
    ? 'Report it with the record'
    : 'Keep the exchange as proof (--save FILE) and report it';
  const advice =
    code === 'attestation_failed'
      ? `${ADVICE[code]} ${proof}.`
      : mode === 'managed' && code === 'manifest_mismatch'
        ? ROLLOUT
        : (ADVICE[code] ?? remedy);
  const isClock = detail?.clock !== undefined;
  return isClock ? `Check the clock of this machine first. If it is right: ${advice}` : advice;
}

/** The check that failed, why that matters, and what was expected and found; without a check, the reason. */
function failedCheck(verdict: Verdict, paint: Paint): string {
  const { failure } = verdict;
  if (failure === null) return '';
  const { id, code, expected, found, source } = failure;
  if (id === null) return `Reason: ${printable(found)} [${code}]`;
  const link = chainOfTrust(verdict).find((each) => each.id === linkOf(id));
  const why = checksAbout('nonce digest').has(id) ? REPORT_DATA : link?.meaning;
  return [
    paint('bad', `✗ ${titleOf(id)}`),
    ...(why === undefined ? [] : [`  why it matters  ${why}`]),
    `  expected        ${printable(expected ?? '')}`,
    `  found           ${printable(found)}`,
    `  check           ${id} (${source}) [${code}]`,
  ].join('\n');
}

function heading({ tee, manifestSha256, at }: Verdict, { rows, mode, atGiven }: TextReport): string {
  const { Subject, Manifest, Roots, Exchange } = rows;
  const shown = {
    ...{
      Subject,
      Hardware: tee && HARDWARE[tee],
      Manifest,
      '': manifestSha256 && `SHA-256 ${manifestSha256}`,
    },
    ...{ Roots, Exchange: Exchange && `SHA-256 ${Exchange}` },
    Time: mode === 'record' && !atGiven ? `${at}, stated by the file` : at,
  };
  return Object.entries(shown)
    .flatMap(([name, value]) => (value ? [`${name.padEnd(10)}${printable(value)}`] : []))
    .join('\n');
}

/** The five links, each with its meaning. With `verbose`, the checks of a link stand below it. */
function chain(verdict: Verdict, { verbose }: TextReport, paint: Paint): string {
  const { checks } = verdict;
  if (checks.length === 0) return '';
  const width = Math.max(...checks.map(({ id }) => titleOf(id).length));
  const lines = chainOfTrust(verdict).flatMap((link) => {
    const line = linkLine(link, verdict.roots, paint);
    if (!verbose) return [line];
    const runs = runsOf(checks.filter((check) => linkOf(check.id) === link.id));
    return [line, ...runs.map((run) => checkLine(run, width, paint)), ''];
  });
  const more = verbose ? [] : ['', 'Each check: --verbose, or --json for a program.'];
  return [paint('bold', 'Chain of trust'), ...lines, ...more].join('\n').trimEnd();
}

/** What even an accepted verdict does not prove (docs/verification.md). */
function notProven({ outcome, roots }: Verdict, { mode }: TextReport): string {
  if (outcome !== 'accepted') return '';
  const lines = [
    ...(roots === 'custom' ? ['anything about real hardware: other roots were trusted'] : []),
    'that the listed software is good: only its publisher, and you, can judge it',
    'anything about the GPU: the server checks that itself, by software which the manifest lists',
    ...(mode === 'record' ? ['when the evidence was made: only that its dates were in force'] : []),
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
  [{ id, outcome, expected, found }, ...more]: readonly [Check, ...Check[]],
  width: number,
  paint: Paint,
): string {
  const [style, mark, counted] = MARKS[outcome];
  const start = `    ${paint(style, mark)} `;
  const told = printable(found);
  if (more.length > 0) {
    const why = outcome === 'not-applicable' ? 'do not apply' : counted;
    return `${start}${more.length + 1} checks ${why}: ${told}`;
  }
  if (outcome === 'fail')
    return `${start}${paint('bad', titleOf(id))}: expected ${printable(expected)}; found ${told}`;
  return `${start}${titleOf(id).padEnd(width)}  ${paint('plain', told)}`;
}
