/**
 * The checks of a verdict as a chain of trust, from the hardware to the secret: each link vouches for the
 * next. `verify`, `status` and the status page show it to people.
 */
import { CHECK_SECTIONS } from '../attestation/verify-evidence.ts';
import { type Paint, plural } from '../text.ts';
import type { Verdict } from './verdict.ts';

/**
 * One link. `outcome`: `pass` if every check that applies held and the links before it pass, `fail` if a
 * check did not hold, else `unknown`.
 */
export interface ChainLink {
  readonly id: 'hardware' | 'manifest' | 'coordinator' | 'mesh' | 'secret';
  /** For a person: `title` names the link, `meaning` says what its checks establish, or do not establish. */
  readonly title: string;
  readonly meaning: string;
  readonly outcome: 'pass' | 'fail' | 'unknown';
  /** Its checks, which stand in the verdict under the same ids. */
  readonly checks: readonly { readonly id: string; readonly title: string }[];
}

/**
 * Each link in order: its meaning, which checks belong to it (whole ids, or beginnings of ids), and of which
 * of them at least one must have passed. The others are preliminaries, which prove nothing about the link.
 */
const LINKS: readonly (readonly [ChainLink['id'], meaning: string, checks: string, needs: RegExp])[] = [
  [
    'hardware',
    'A genuine AMD or Intel processor, up to date and not revoked, signed a report about what runs on it.',
    'evidence.form evidence.type snp.report tdx.quote tdx.qe snp.vcek snp.product snp.roots snp.chain snp.crl ' +
      'tdx.pck tdx.tcb_info tdx.qe_identity tdx.root_crl tdx.pck_crl tdx.revocation ' +
      'snp.migration_agent snp.platform snp.tcb snp.firmware snp.mitigation snp.chip_id tdx.tcb',
    /^(?:snp|tdx)\./,
  ],
  [
    'manifest',
    'The service runs under the manifest that is expected, which names every program that may run.',
    'manifest document.policies evidence.reference_values',
    /^manifest\./,
  ],
  [
    'coordinator',
    'The program that the hardware measured is the coordinator of the manifest, alone and not debuggable, and it answered the nonce of this proxy.',
    'nonce document.form snp.report_data tdx.policy.report_data ' +
      'snp.host_data snp.measurement snp.id_key snp.id_block snp.vmpl snp.policy tdx.policy',
    /^(?:snp|tdx)\./,
  ],
  [
    'mesh',
    'The coordinator vouches for the other programs with certificates of its own, and the secret service has one of them.',
    'document.mesh_ca mesh',
    /^mesh\./,
  ],
  [
    'secret',
    'The secret service agreed on a key with this proxy and signed it. Prompts are encrypted with that key.',
    'secret',
    /^secret\./,
  ],
];

const OTHER_ROOTS =
  'NOT genuine AMD or Intel hardware, as far as anybody can tell: custom roots are trusted, such as those of a simulator. Whoever holds their keys can make this evidence.';

const LINK_OF: ReadonlyMap<string, ChainLink['id']> = new Map(
  LINKS.flatMap(([link, , checks]) => checks.split(' ').map((name) => [name, link] as const)),
);

/** The link of a check, by the longest beginning of its id that the table has; undefined if it has none. */
export function linkOf(id: string): ChainLink['id'] | undefined {
  for (let name = id; name !== ''; name = name.slice(0, Math.max(0, name.lastIndexOf('.')))) {
    const link = LINK_OF.get(name);
    if (link !== undefined) return link;
  }
  return undefined;
}

const TITLES: ReadonlyMap<string, string> = new Map(
  CHECK_SECTIONS.flatMap(({ rows }) => rows).map(({ id, title }) => [id, title]),
);

/** The checks that compare a digest over the nonce. */
export const NONCE_DIGESTS: ReadonlySet<string> = new Set(
  CHECK_SECTIONS.flatMap(({ rows }) => rows.filter(({ comparesNonce }) => comparesNonce).map(({ id }) => id)),
);

/** The title of a check for a person; the id itself if the program does not know the check. */
export const titleOf = (id: string): string => TITLES.get(id) ?? id;

/**
 * The links of a verdict, in the order of trust. A link is `unknown` if one of its checks was not evaluated,
 * if none of those that it needs passed, or if a link before it did not pass: nothing vouches for it then.
 */
export function chainOfTrust({ checks, roots }: Pick<Verdict, 'checks' | 'roots'>): readonly ChainLink[] {
  let vouched = true;
  return LINKS.map(([id, meant, , needs]) => {
    const own = checks.filter((check) => linkOf(check.id) === id);
    const outcomes = new Set(own.map(({ outcome }) => outcome));
    const isMade = own.some(({ id, outcome }) => needs.test(id) && outcome === 'pass');
    const holds = vouched && isMade && !outcomes.has('not-evaluated');
    const outcome = outcomes.has('fail') ? 'fail' : holds ? 'pass' : 'unknown';
    vouched = outcome === 'pass';
    const established = id === 'hardware' && roots === 'custom' ? OTHER_ROOTS : meant;
    const meaning = vouched ? established : `Not established: ${meant}`;
    const title = id.replace(/^./, (first) => first.toUpperCase());
    return { id, title, meaning, outcome, checks: own.map(({ id }) => ({ id, title: titleOf(id) })) };
  });
}

const MARKS = { pass: ['good', '✓'], fail: ['bad', '✗'], unknown: ['plain', '?'] } as const;

/** A link as one line for a terminal: its mark, its title, how many checks it has, what they establish. */
export function linkLine(link: ChainLink, roots: Verdict['roots'] | undefined, paint: Paint): string {
  const { id, title, meaning, outcome, checks } = link;
  const isCustom = id === 'hardware' && outcome === 'pass' && roots === 'custom';
  // A proxy of another version may send an outcome that this one does not know.
  const [style, mark] = isCustom ? (['caution', '!'] as const) : (MARKS[outcome] ?? MARKS.unknown);
  return `${paint(style, mark)} ${title.padEnd(11)}  ${plural(checks.length, 'check').padEnd(9)}  ${meaning}`;
}
