/**
 * The checks of a verdict as a chain of trust, from the hardware to the secret. `verify`, `status` and the
 * status page show it to people.
 */
import type { Check } from '../attestation/check.ts';
import { type Paint, plural, type Style } from '../text.ts';
import { titleOf } from './checks.ts';
import type { VerdictReport } from './verdict.ts';

/** The links, from the hardware to the secret. Each link vouches for the next. */
export type LinkId = 'hardware' | 'manifest' | 'coordinator' | 'mesh' | 'secret';

/** Which checks belong to which link: whole ids, or beginnings of ids. */
const CHECKS_OF: Readonly<Record<LinkId, string>> = {
  hardware:
    'evidence.form evidence.type snp.report tdx.quote tdx.qe snp.vcek snp.product snp.roots snp.chain snp.crl ' +
    'tdx.pck tdx.tcb_info tdx.qe_identity tdx.root_crl tdx.pck_crl tdx.revocation ' +
    'snp.migration_agent snp.platform snp.tcb snp.firmware snp.mitigation snp.chip_id tdx.tcb',
  manifest: 'manifest document.policies evidence.reference_values',
  coordinator:
    'nonce document.form snp.report_data tdx.policy.report_data ' +
    'snp.host_data snp.measurement snp.id_key snp.id_block snp.vmpl snp.policy tdx.policy',
  mesh: 'document.mesh_ca mesh',
  secret: 'secret',
};

const LINK_OF: ReadonlyMap<string, LinkId> = new Map(
  Object.entries(CHECKS_OF).flatMap(([link, names]) =>
    names.split(' ').map((name) => [name, link as LinkId] as const),
  ),
);

/** The link of a check, by the longest beginning of its id that the table has; undefined if it has none. */
export function linkOf(id: string): LinkId | undefined {
  for (let name = id; name !== ''; name = name.slice(0, Math.max(0, name.lastIndexOf('.')))) {
    const link = LINK_OF.get(name);
    if (link !== undefined) return link;
  }
  return undefined;
}

/**
 * One link of the chain of trust, which leads from the hardware to the secret: each link vouches for the
 * next. `outcome`: `pass` if every check that applies held and the links before it pass, `fail` if a check
 * did not hold, else `unknown`.
 */
export interface ChainLink {
  readonly id: LinkId;
  /** For a person: `title` names the link, `meaning` says what its checks establish, or do not establish. */
  readonly title: string;
  readonly meaning: string;
  readonly outcome: 'pass' | 'fail' | 'unknown';
  /** Its checks, which stand in the verdict under the same ids. */
  readonly checks: readonly { readonly id: string; readonly title: string }[];
}

type LinkRow = Pick<ChainLink, 'id' | 'title' | 'meaning'> & {
  /** Replaces `meaning` if the roots are not those of AMD and Intel. */
  readonly underCustomRoots?: string;
  /**
   * At least one of the link's checks with such an id must have passed. The others are preliminaries, which
   * prove nothing about the link.
   */
  readonly needs: RegExp;
};

const LINKS: readonly LinkRow[] = [
  {
    id: 'hardware',
    title: 'Hardware',
    meaning:
      'A genuine AMD or Intel processor, up to date and not revoked, signed a report about what runs on it.',
    underCustomRoots:
      'NOT genuine AMD or Intel hardware, as far as anybody can tell: custom roots are trusted, such as those of a simulator. Whoever holds their keys can make this evidence.',
    needs: /^(?:snp|tdx)\./,
  },
  {
    id: 'manifest',
    title: 'Manifest',
    meaning: 'The service runs under the manifest that is expected, which names every program that may run.',
    needs: /^manifest\./,
  },
  {
    id: 'coordinator',
    title: 'Coordinator',
    meaning:
      'The program that the hardware measured is the coordinator of the manifest, alone and not debuggable, and it answered the nonce of this proxy.',
    needs: /^(?:snp|tdx)\./,
  },
  {
    id: 'mesh',
    title: 'Mesh',
    meaning:
      'The coordinator vouches for the other programs with certificates of its own, and the secret service has one of them.',
    needs: /^mesh\./,
  },
  {
    id: 'secret',
    title: 'Secret',
    meaning:
      'The secret service agreed on a key with this proxy and signed it. Prompts are encrypted with that key.',
    needs: /^secret\./,
  },
];

/**
 * The links with their checks, in the order of trust. `roots`: those that the checks were made under. A link
 * is `unknown` if one of its checks was not evaluated, if none of those that it needs passed, or if a link
 * before it did not pass, because nothing vouches for it then.
 */
export function chainOfTrust(checks: readonly Check[], roots: VerdictReport['roots']): readonly ChainLink[] {
  let vouched = true;
  return LINKS.map(({ id, title, needs, ...means }) => {
    const own = checks.filter((check) => linkOf(check.id) === id);
    const outcomes = new Set(own.map(({ outcome }) => outcome));
    const isMade = own.some(({ id, outcome }) => needs.test(id) && outcome === 'pass');
    const holds = vouched && isMade && !outcomes.has('not-evaluated');
    const outcome = outcomes.has('fail') ? 'fail' : holds ? 'pass' : 'unknown';
    vouched = outcome === 'pass';
    const { underCustomRoots = means.meaning } = means;
    const established = roots === 'custom' ? underCustomRoots : means.meaning;
    const meaning = vouched ? established : `Not established: ${means.meaning}`;
    return { id, title, meaning, outcome, checks: own.map(({ id }) => ({ id, title: titleOf(id) })) };
  });
}

const MARKS = {
  pass: ['good', '✓'],
  fail: ['bad', '✗'],
  unknown: ['plain', '?'],
} as const satisfies Record<ChainLink['outcome'], readonly [Style, string]>;

const TITLE_WIDTH = Math.max(...LINKS.map(({ title }) => title.length));

/**
 * A link as one line for a terminal: its mark, its title, how many checks it has, and what they establish.
 */
export function linkLine(link: ChainLink, roots: VerdictReport['roots'] | undefined, paint: Paint): string {
  const { id, title, meaning, outcome, checks } = link;
  const isCustom = id === 'hardware' && outcome === 'pass' && roots === 'custom';
  // A proxy of another version may send an outcome that this one does not know.
  const [style, mark] = isCustom ? (['caution', '!'] as const) : (MARKS[outcome] ?? MARKS.unknown);
  const count = plural(checks.length, 'check').padEnd(9);
  return `${paint(style, mark)} ${title.padEnd(TITLE_WIDTH)}  ${count}  ${meaning}`;
}
