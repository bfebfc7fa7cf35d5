/**
 * The verdict for a person: the result and what to do, then the chain of trust, and at the end what it does
 * not prove.
 */
import type { ErrorCode } from '../errors.ts';
import { type Paint, painter, plural, printable } from '../text.ts';
import { chainOfTrust, linkLine, linkOf, titleOf } from './chain-of-trust.ts';
import { errorOf, OUTCOMES, type Verdict } from './verdict.ts';

type Check = Verdict['checks'][number];

/** The circumstances of a verification, and how to show it. */
export interface TextReport {
  /** Live, by the `managed` manifest that the service publishes or by a `static` one, or of a `record`. */
  readonly mode: 'managed' | 'static' | 'record';
  /** The rows of the heading by name, beside what the verdict says. */
  readonly rows: Readonly<Partial<Record<'Subject' | 'Manifest' | 'Roots' | 'Exchange', string>>>;
  /** Who named the time of the verdict, if not the clock of this machine. */
  readonly timeFrom: string;
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

/** The roots in the heading. `from`: the place that named others than those of AMD and Intel. */
export const rootsFrom = (from: string | undefined): string =>
  from === undefined ? 'AMD and Intel, built in' : `${from}, NOT those of AMD and Intel`;

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

/** The text, ending with a line feed. Control characters in texts of the remote are escaped. */
export function renderText(verdict: Verdict, report: TextReport): string {
  const paint = painter(report.colours);
  const parts = [
    `${result(verdict, paint)}\n${adviceFor(verdict, report.mode)}`,
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

const DISTRUST = 'Do not trust any deployment on this evidence.';

/** What to do about a failure, where the remedy of its error does not say it. */
const ADVICE: Readonly<Partial<Record<ErrorCode, string>>> = {
  attestation_failed:
    'Do not send anything to this remote. Keep the exchange as proof (--save FILE) and report it.',
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
function adviceFor(verdict: Verdict, mode: TextReport['mode']): string {
  const error = errorOf(verdict);
  if (error === undefined) {
    return verdict.roots === 'custom'
      ? 'The roots are not those of AMD and Intel: this says nothing about real hardware.'
      : MEANING[mode];
  }
  const { code, remedy, detail } = error;
  if (detail?.newer) return remedy;
  const isOfRecord = mode === 'record' && verdict.failure?.id !== null && code !== 'manifest_unsupported';
  if (isOfRecord) return DISTRUST;
  const isRollout = mode === 'managed' && code === 'manifest_mismatch';
  const advice = isRollout ? ROLLOUT : (ADVICE[code] ?? remedy);
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
  return [
    paint('bad', `✗ ${titleOf(id)}`),
    ...(link === undefined ? [] : [`  why it matters  ${link.meaning}`]),
    `  expected        ${printable(expected ?? '')}`,
    `  found           ${printable(found)}`,
    `  check           ${id} (${source}) [${code}]`,
  ].join('\n');
}

function heading({ tee, manifestSha256, at }: Verdict, { rows, timeFrom }: TextReport): string {
  const shown: readonly (readonly [name: string, value: string | null | undefined])[] = [
    ['Subject', rows.Subject],
    ['Hardware', tee && HARDWARE[tee]],
    ['Manifest', rows.Manifest],
    ['', manifestSha256 && `SHA-256 ${manifestSha256}`],
    ['Roots', rows.Roots],
    ['Exchange', rows.Exchange && `SHA-256 ${rows.Exchange}`],
    ['Time', `${at}${timeFrom}`],
  ];
  return shown
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
    const own = checks.filter((check) => linkOf(check.id) === link.id);
    // Checks that were neither passed nor failed, for the same reason, share a line.
    const runs = Map.groupBy(own, ({ id, outcome, found }) =>
      outcome === 'pass' || outcome === 'fail' ? id : `${outcome} ${found}`,
    );
    return [line, ...Array.from(runs.values(), (run) => checkLine(run, width, paint)), ''];
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

function checkLine([check, ...more]: readonly Check[], width: number, paint: Paint): string {
  const { id, outcome, expected, found } = check as Check;
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
