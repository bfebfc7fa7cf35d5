/** What each stream of a soak asks for: drawn from a seed, so that a run can be repeated. */

import { seededRandom } from '../../bench/stats.ts';
import type { Question } from '../faults/ask.ts';
import { type Cell, complete } from '../faults/cells.ts';
import { faultName, MATRIX } from '../faults/matrix.ts';

export interface Job {
  readonly question: Question;
  /** The words of the answer, where it is whole. */
  readonly text: string;
  readonly expected: Cell;
  /** ms after which the client leaves; undefined: it stays. */
  readonly leavesAfter: number | undefined;
}

/** Too much for a load of hundreds: lines of many megabytes, bytes on their own, uploads. */
const HEAVY = new Set(['huge_line', 'trickle']);
/** Rows that need no proxy of their own; the soak's own time-outs are short, so stalls are among them. */
const FAULTS = MATRIX.filter(
  ({ asks, proxy, uploadBytes }) =>
    !HEAVY.has(faultName({ asks })) && uploadBytes === undefined && proxy !== 'fresh' && proxy !== 'strict',
);

/** Out of a hundred requests. */
const SHARE = { faults: 15, departures: 15, unary: 10 };
const LONGEST_STAY = 1_000;

const words = (count: number): string =>
  Array.from({ length: count }, (_, i) => (i === 0 ? 't0' : ` t${i}`)).join('');

export function createPlan(seed: number): () => Job {
  const random = seededRandom(seed);
  const upTo = (limit: number): number => Math.floor(random() * limit);

  return () => {
    const style = random() < 0.5 ? 'openai' : 'anthropic';
    const dice = upTo(100);
    const mode = upTo(100) < SHARE.unary ? 'unary' : 'stream';
    const prompt = 'x'.repeat(upTo(2_000));
    if (dice < SHARE.faults) {
      const { asks, cells } = FAULTS[upTo(FAULTS.length)]!;
      const question = { style, mode, prompt, model: `sim-12x5+${asks}` } as const;
      return { question, text: words(12), expected: cells[mode], leavesAfter: undefined };
    }
    const tokens = 10 + upTo(60);
    const question = { style, mode, prompt, model: `sim-${tokens}x${5 + upTo(25)}` } as const;
    const leavesAfter = dice < SHARE.faults + SHARE.departures ? upTo(LONGEST_STAY) : undefined;
    return { question, text: words(tokens), expected: complete(), leavesAfter };
  };
}
