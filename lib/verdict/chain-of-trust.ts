/**
 * Arranges the checks of a verdict as a chain of trust from the hardware to the secret, in which each link
 * vouches for the next link. `verify`, `status` and the status page show this chain to people.
 */
import { CHECK_SECTIONS } from '../attestation/verify-evidence.ts';
import { type Paint, plural } from '../text.ts';
import type { Verdict } from './verdict.ts';

/** One link of the chain of trust, with texts for a person. The verdict has checks with the same ids. */
export interface ChainLink {
  readonly id: 'hardware' | 'manifest' | 'coordinator' | 'mesh' | 'secret';
  readonly title: string;
  /** What the checks of the link prove, or what these checks failed to prove. */
  readonly meaning: string;
  /** `pass`: all checks that apply and all earlier links pass. `fail`: a check of the link failed. */
  readonly outcome: 'pass' | 'fail' | 'unknown';
  readonly checks: readonly { readonly id: string; readonly title: string }[];
}

/** What each link proves, and a pattern for its check ids. A check belongs to the last matching link. */
const LINKS: Readonly<Record<ChainLink['id'], readonly [meaning: string, checks: RegExp]>> = {
  hardware: [
    'A genuine AMD or Intel processor, up to date and not revoked, signed a report about what runs on it.',
    /^/,
  ],
  manifest: [
    'The service runs under the manifest that is expected, which names every program that may run.',
    /^(?:manifest|document\.policies|evidence\.reference_values)\b/,
  ],
  coordinator: [
    'The program that the hardware measured is the coordinator of the manifest, alone and not debuggable, and it answered the nonce of this proxy.',
    /^(?:nonce|document\.form|(?:snp|tdx)\.policy|snp\.(?:report_data|host_data|measurement|id_key|id_block|vmpl))\b/,
  ],
  mesh: [
    'The coordinator vouches for the other programs with certificates of its own, and the secret service has one of them.',
    /^(?:document\.mesh_ca|mesh)\b/,
  ],
  secret: [
    'The secret service agreed on a key with this proxy and signed it. Prompts are encrypted with that key.',
    /^secret\b/,
  ],
};

/** Finds the link of the chain of trust to which a check belongs. */
const linkOf = (id: string) => Object.entries(LINKS).findLast(([, [, checks]]) => checks.test(id))?.[0];

const OTHER_ROOTS =
  'NOT genuine AMD or Intel hardware, as far as anybody can tell: custom roots are trusted, such as those of a simulator. Whoever holds their keys can make this evidence.';

/** Checks that prove nothing alone. A link passes only if a check that is not preliminary passed, too. */
const PRELIMINARY = /^(?:nonce|document|evidence)\./;

const TITLES = new Map(CHECK_SECTIONS.flatMap(({ rows }) => rows.map(({ id, title }) => [id, title])));

/** The title of a check for a person, or the check id if this program does not know the check. */
export const titleOf = (id: string): string => TITLES.get(id) ?? id;

/**
 * The links of a verdict, in the order of trust. A link is `unknown` if one of its checks was not evaluated,
 * if only preliminary checks passed, or if an earlier link did not pass and so nothing vouches for the link.
 */
export function chainOfTrust({ checks, roots }: Pick<Verdict, 'checks' | 'roots'>): readonly ChainLink[] {
  let vouched = true;
  return Object.entries(LINKS).map(([id, [meant]]) => {
    const own = checks.filter((check) => linkOf(check.id) === id);
    const outcomes = new Set(own.map(({ outcome }) => outcome));
    const isMade = own.some(({ id, outcome }) => outcome === 'pass' && !PRELIMINARY.test(id));
    const holds = vouched && isMade && !outcomes.has('not-evaluated');
    const outcome = outcomes.has('fail') ? 'fail' : holds ? 'pass' : 'unknown';
    vouched = outcome === 'pass';
    const established = id === 'hardware' && roots === 'custom' ? OTHER_ROOTS : meant;
    const meaning = vouched ? established : `Not established: ${meant}`;
    const title = id.replace(/^./, (first) => first.toUpperCase());
    const rows = own.map((check) => ({ id: check.id, title: titleOf(check.id) }));
    return { id: id as ChainLink['id'], title, meaning, outcome, checks: rows };
  });
}

/** The colour and symbol of each outcome. `custom` is a pass under roots that are not of AMD or Intel. */
export const MARKS = {
  pass: ['good', '✓'],
  custom: ['caution', '!'],
  fail: ['bad', '✗'],
  'not-applicable': ['plain', '–'],
  'not-evaluated': ['plain', '?'],
  unknown: ['plain', '?'],
} as const;

/** A link as one line of terminal text: symbol, title, number of checks, and what the checks prove. */
export function linkLine(link: ChainLink, roots: Verdict['roots'] | undefined, paint: Paint): string {
  const { id, title, meaning, outcome, checks } = link;
  const isCustom = id === 'hardware' && outcome === 'pass' && roots === 'custom';
  // A proxy of another version may send an outcome that is unknown to this version.
  const [style, mark] = MARKS[isCustom ? 'custom' : outcome] ?? MARKS.unknown;
  return `${paint(style, mark)} ${title.padEnd(11)}  ${plural(checks.length, 'check').padEnd(9)}  ${meaning}`;
}
