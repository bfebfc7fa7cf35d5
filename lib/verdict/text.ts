/**
 * Renders the verdict as text for a person: the result, what to do, the chain of trust, and finally what the
 * verdict does not prove.
 */
import { type Paint, painter, plural, printable } from '../text.ts';
import { chainOfTrust, linkLine, MARKS, titleOf } from './chain-of-trust.ts';
import { errorOf, OUTCOMES, type Verdict } from './verdict.ts';

/** The circumstances of a verification that the text of its verdict states. */
export interface Report {
  /** Where the manifest is from: the live service (`managed`), the user (`static`), or a `record` file. */
  readonly mode: 'managed' | 'static' | 'record';
  /** The subject that was verified. `manifest` says where the expected manifest comes from. */
  readonly subject: string;
  readonly manifest?: string;
  /** The SHA-256 of the record of the exchange. */
  readonly exchange?: string;
  /** The flag or file that named roots other than those of AMD and Intel. */
  readonly roots?: string | undefined;
  /** The source of the verdict's time if the time is not from this machine's clock. */
  readonly timeFrom?: string | undefined;
}

/** The warning that roots other than those of AMD and Intel are trusted. `where`: what names these roots. */
export const foreignRoots = (where: string): string =>
  `!! WARNING: ${where} names other hardware roots than those of AMD and Intel.\n!! Whoever holds their keys can make evidence that is accepted, without any protected hardware.`;

/**
 * The verdict as text, ending with a line feed. Control characters in text from the service are escaped. With
 * `verbose`, each check is listed below its link of the chain of trust.
 */
export function renderText(verdict: Verdict, report: Report, colours: boolean, verbose: boolean): string {
  const paint = painter(colours);
  const parts = [
    `${result(verdict, paint)}\n${adviceFor(verdict, report.mode)}`,
    failedCheck(verdict, paint),
    heading(verdict, report),
    chain(verdict, verbose, paint),
    notProven(verdict, report.mode),
  ];
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`;
}

/** The outcome of the verdict, and the number of checks for each outcome of a check. */
function result({ outcome, checks, roots }: Verdict, paint: Paint): string {
  const isCustom = outcome === 'accepted' && roots === 'custom';
  const [style, mark] = MARKS[isCustom ? 'custom' : outcome === 'accepted' ? 'pass' : 'fail'];
  const kinds = Object.entries(Object.groupBy(checks, (check) => check.outcome));
  const counted = kinds.map(([kind, { length }]) => `${length} ${kind}`).join(', ');
  const headline = `${paint(style, `${mark} ${outcome.toUpperCase()}`)}${isCustom ? ' under custom roots' : ''}`;
  const total = counted && `\n${plural(checks.length, 'check')}: ${counted}.`;
  return `${headline}: ${OUTCOMES[outcome].meaning}.${total}`;
}

/** The meaning of an accepted verdict for each mode of verification. */
const MEANING = {
  managed:
    'A proxy started with the same flags encrypts for a deployment under the manifest that the publisher then names; now that is this one. To pin it, use --manifest-path.',
  static: 'A proxy started with the same flags encrypts for this deployment and for no other.',
  record: 'What the deployment ran is what the manifest names: compare its SHA-256 with one you trust.',
} as const;

const ROLLOUT =
  'The service publishes one manifest and runs under another. During an update that passes within minutes; else report it.';

/** Returns what to do next, or the meaning of an accepted verdict. */
function adviceFor(verdict: Verdict, mode: Report['mode']): string {
  const error = errorOf(verdict);
  if (error === undefined)
    return verdict.roots === 'custom'
      ? 'The roots are not those of AMD and Intel: this says nothing about real hardware.'
      : MEANING[mode];
  const { code, remedy, detail } = error;
  const isForUpdate = code === 'manifest_unsupported' || detail?.newer;
  if (mode === 'record' && verdict.failure?.id !== null && !isForUpdate)
    return 'Do not trust any deployment on this evidence.';
  return mode === 'managed' && code === 'manifest_mismatch' ? ROLLOUT : remedy;
}

/** Says why the failed check matters, and what was expected and found. If no check failed, says why. */
function failedCheck(verdict: Verdict, paint: Paint): string {
  const { failure } = verdict;
  if (failure === null) return '';
  const { id, code, expected, found, source } = failure;
  if (id === null) return `Reason: ${printable(found)} [${code}]`;
  const link = chainOfTrust(verdict).find(({ checks }) => checks.some((check) => check.id === id));
  return [
    paint('bad', `✗ ${titleOf(id)}`),
    `  why it matters  ${link?.meaning ?? ''}`,
    `  expected        ${printable(expected ?? '')}`,
    `  found           ${printable(found)}`,
    `  check           ${id} (${source}) [${code}]`,
  ].join('\n');
}

function heading({ tee, manifestSha256, at, checks }: Verdict, report: Report): string {
  const { subject, manifest, exchange, timeFrom = '' } = report;
  const roots = report.roots
    ? `those of ${report.roots}, NOT those of AMD and Intel`
    : 'AMD and Intel, built in';
  const rows = {
    Subject: subject,
    Hardware: tee && { snp: 'AMD SEV-SNP', tdx: 'Intel TDX' }[tee],
    Manifest: manifest,
    '': manifestSha256 && `SHA-256 ${manifestSha256}`,
    Roots: checks.length > 0 && roots,
    Exchange: exchange && `SHA-256 ${exchange}`,
    Time: `${at}${timeFrom}`,
  };
  return Object.entries(rows)
    .flatMap(([name, value]) => (value ? [`${name.padEnd(10)}${printable(value)}`] : []))
    .join('\n');
}

/** The five links of the chain of trust. With `verbose`, the checks of each link follow below the link. */
function chain(verdict: Verdict, verbose: boolean, paint: Paint): string {
  const made = verdict.checks.filter(({ outcome }) => outcome !== 'not-evaluated');
  if (verdict.checks.length === 0) return '';
  const width = Math.max(...made.map(({ id }) => titleOf(id).length));
  const lines = chainOfTrust(verdict).flatMap((link) => {
    const own = verbose ? made.filter(({ id }) => link.checks.some((check) => check.id === id)) : [];
    return [linkLine(link, verdict.roots, paint), ...own.map((check) => checkLine(check, width, paint))];
  });
  const more = verbose ? [] : ['', 'Each check: --verbose, or --json for a program.'];
  return [paint('bold', 'Chain of trust'), ...lines, ...more].join('\n');
}

function checkLine(check: Verdict['checks'][number], width: number, paint: Paint): string {
  const { id, outcome, expected, found } = check;
  const [style, mark] = MARKS[outcome];
  const told = outcome === 'fail' ? `expected ${printable(expected)}; found ` : '';
  return `    ${paint(style, mark)} ${titleOf(id).padEnd(width)}  ${paint('plain', told + printable(found))}`;
}

/** What even an accepted verdict does not prove (docs/verify.md). */
function notProven({ outcome, roots }: Verdict, mode: Report['mode']): string {
  if (outcome !== 'accepted') return '';
  const lines = [
    ...(roots === 'custom' ? ['anything about real hardware: other roots were trusted'] : []),
    'that the listed software is good: only its publisher, and you, can judge it',
    'anything about the GPU: the server checks that itself, by software which the manifest lists',
    ...(mode === 'record' ? ['when the evidence was made: only that its dates were in force'] : []),
  ];
  return ['This does not prove', ...lines.map((line) => `  - ${line}`)].join('\n');
}
