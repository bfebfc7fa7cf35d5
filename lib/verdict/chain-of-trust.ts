/** The checks of a verdict as a chain of trust, from the hardware to the secret, for people who look at the status page. */
import type { Check } from '../attestation/check.ts';
import { type LinkId, placeOf, titleOf } from './checks.ts';
import type { VerdictReport } from './verdict.ts';

/**
 * One link of the chain of trust, from the hardware to the secret: each is vouched for by the one before it. `outcome`: `pass` where every
 * check that applies held and the links before it pass, `fail` where one did not hold, else `unknown`.
 */
export interface ChainLink {
  readonly id: LinkId;
  /** For a person: what the link is, and what its checks establish, or do not. */
  readonly title: string;
  readonly meaning: string;
  readonly outcome: 'pass' | 'fail' | 'unknown';
  /** Its checks, which stand in the verdict under the same ids. */
  readonly checks: readonly { readonly id: string; readonly title: string }[];
}

type LinkRow = Pick<ChainLink, 'id' | 'title' | 'meaning'> & {
  /** In place of `meaning` where the roots are not those of AMD and Intel. */
  readonly underCustomRoots?: string;
  /** Of its checks with such an id at least one must have been made: the others are preliminaries, which prove nothing about the link. */
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
 * The links with the checks that were made under these roots, in the order of trust. A link is unknown where one of its checks is open, and where a link before
 * it did not pass: nothing vouches for it then.
 */
export function chainOfTrust(checks: readonly Check[], roots: VerdictReport['roots']): readonly ChainLink[] {
  let vouched = true;
  return LINKS.map(({ id, title, needs, ...means }) => {
    const own = checks.filter((check) => placeOf(check.id)?.link === id);
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
