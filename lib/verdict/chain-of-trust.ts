/** The checks of a verdict as a chain of trust, from the hardware to the secret, for people who look at the status page. */
import { CHECK_SECTIONS, type Check } from '../attestation/verify.ts';
import type { VerdictReport } from './verdict.ts';

/**
 * One link of the chain of trust, from the hardware to the secret: each is vouched for by the one before it. `outcome`: `pass` where every
 * check that applies held and the links before it pass, `fail` where one did not hold, else `unknown`.
 */
export interface ChainLink {
  readonly id: 'hardware' | 'manifest' | 'coordinator' | 'mesh' | 'secret';
  /** For a person: what the link is, and what its checks establish. */
  readonly title: string;
  readonly meaning: string;
  readonly outcome: 'pass' | 'fail' | 'unknown';
  /** Its checks, which stand in the verdict under the same ids. */
  readonly checks: readonly { readonly id: string; readonly title: string }[];
}

type LinkRow = Pick<ChainLink, 'id' | 'title' | 'meaning'> & {
  /** In place of `meaning` where the roots are not those of AMD and Intel. */
  readonly underCustomRoots?: string;
  /** Which checks belong to it, by their ids. Each id matches exactly one link. */
  readonly checks: RegExp;
  /** Of these at least one must have been made: the others are preliminaries, which prove nothing about the link. */
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
    checks:
      /^(?:evidence\.(?:form|type)|snp\.(?:report\.|vcek\.|product|roots|chain\.|crl\.|platform\.|tcb\.|firmware\.|mitigation\.|chip_id\.|migration_agent)|tdx\.(?!policy\.))/,
    needs: /^(?:snp|tdx)\./,
  },
  {
    id: 'manifest',
    title: 'Manifest',
    meaning: 'The service runs under the manifest that is expected, which names every program that may run.',
    checks: /^(?:manifest\.|document\.policies|evidence\.reference_values)/,
    needs: /^manifest\./,
  },
  {
    id: 'coordinator',
    title: 'Coordinator',
    meaning:
      'The program that the hardware measured is the coordinator of the manifest, alone and not debuggable, and it answered just now.',
    checks:
      /^(?:nonce\.|document\.form|snp\.(?:report_data|host_data|measurement|id_key|id_block|vmpl|policy\.)|tdx\.policy\.)/,
    needs: /^(?:snp|tdx)\./,
  },
  {
    id: 'mesh',
    title: 'Mesh',
    meaning:
      'The coordinator vouches for the other programs with certificates of its own, and the secret service has one of them.',
    checks: /^(?:document\.mesh_ca|mesh\.)/,
    needs: /^mesh\./,
  },
  {
    id: 'secret',
    title: 'Secret',
    meaning:
      'The secret service agreed on a key with this proxy and signed it. Prompts are encrypted with that key.',
    checks: /^secret\./,
    needs: /^secret\./,
  },
];

const TITLES = new Map(
  CHECK_SECTIONS.flatMap(({ rows }) => rows.map(({ id, title }) => [id, title] as const)),
);

/** The link that a check belongs to. */
export const linkOf = (id: string): ChainLink['id'] | undefined =>
  LINKS.find(({ checks }) => checks.test(id))?.id;

/**
 * The links with the checks that were made under these roots, in the order of trust. A link is unknown where one of its checks is open, and where a link before
 * it did not pass: nothing vouches for it then.
 */
export function chainOfTrust(checks: readonly Check[], roots: VerdictReport['roots']): readonly ChainLink[] {
  let vouched = true;
  return LINKS.map(({ id, title, checks: pattern, needs, ...means }) => {
    const { meaning, underCustomRoots = meaning } = means;
    const link = { id, title, meaning: roots === 'custom' ? underCustomRoots : meaning };
    const own = checks.filter(({ id }) => pattern.test(id));
    const outcomes = new Set(own.map(({ outcome }) => outcome));
    const isMade = own.some(({ id, outcome }) => needs.test(id) && outcome === 'pass');
    const holds = vouched && isMade && !outcomes.has('not-evaluated');
    const outcome = outcomes.has('fail') ? 'fail' : holds ? 'pass' : 'unknown';
    vouched = outcome === 'pass';
    return { ...link, outcome, checks: own.map(({ id }) => ({ id, title: TITLES.get(id) ?? id })) };
  });
}
