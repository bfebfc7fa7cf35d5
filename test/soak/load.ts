/**
 * The load of a soak: so many streams at a time, each followed by the next, drawn from a seed so that a run
 * can be repeated; and what became of them.
 */
import { Agent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom } from '../../bench/stats.ts';
import { ask, type ChatResponse, type Question } from '../faults/ask.ts';
import { type Cell, complete } from '../faults/cells.ts';
import { faultName, MATRIX } from '../faults/matrix.ts';

interface Job {
  readonly question: Question;
  /** The words of the answer, where it is whole. */
  readonly text: string;
  readonly expected: Cell;
  /** ms after which the client leaves; undefined: it stays. */
  readonly leavesAfter?: number;
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
/**
 * ms from the first stream of a stretch to the last: handshakes all at once would measure nothing but
 * themselves.
 */
const RAMP = 1_000;

const words = (count: number): string => Array.from({ length: count }, (_, i) => `t${i}`).join(' ');

function plan(seed: number): () => Job {
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
      return { question, text: words(12), expected: cells[mode] };
    }
    const tokens = 10 + upTo(60);
    const question = { style, mode, prompt, model: `sim-${tokens}x${5 + upTo(25)}` } as const;
    const leaves = dice < SHARE.faults + SHARE.departures && { leavesAfter: upTo(LONGEST_STAY) };
    return { question, text: words(tokens), expected: complete(), ...leaves };
  };
}

export interface Load {
  requests: number;
  complete: number;
  /** Clients that left before the end. */
  left: number;
  /** Faults that ended as the matrix says. */
  faults: number;
  /** What the faults must have added to the counters. */
  readonly injected: Map<string, number>;
  /** Log lines above info that the faults explain. */
  readonly explained: Set<string>;
  /** What nobody asked for, in words. */
  readonly unexplained: string[];
  /** Runs for that many ms, then lets what runs end. */
  run(ms: number): Promise<void>;
}

export function createLoad(url: string, streams: number, seed: number): Load {
  const nextJob = plan(seed);
  const load: Load = {
    ...{ requests: 0, complete: 0, left: 0, faults: 0 },
    ...{ injected: new Map(), explained: new Set(), unexplained: [] },
    async run(ms) {
      const end = Date.now() + ms;
      const agent = new Agent({ keepAlive: true });
      const stream = async (_: unknown, i: number): Promise<void> => {
        await delay((RAMP * i) / streams);
        while (Date.now() < end) await one(agent);
      };
      await Promise.all(Array.from({ length: streams }, stream));
      agent.destroy();
    },
  };

  async function one(agent: Agent): Promise<void> {
    const job = nextJob();
    const { question, leavesAfter, expected } = job;
    const named = `${question.style} ${question.mode} ${question.model}`;
    load.requests += 1;
    // Timers that fire when nobody waits any more would keep the load alive.
    const departure = leavesAfter === undefined ? undefined : AbortSignal.timeout(leavesAfter);
    try {
      const response = await ask(url, { ...question, agent, ...(departure && { signal: departure }) });
      const wrong = difference(response, job);
      if (wrong !== undefined) load.unexplained.push(`${named}: ${wrong}`);
      else if (!question.model.includes('+')) load.complete += 1;
      else {
        load.faults += 1;
        for (const label of expected.log) load.explained.add(label);
        for (const name of injectedBy(expected)) load.injected.set(name, (load.injected.get(name) ?? 0) + 1);
      }
    } catch (thrown) {
      if (departure?.aborted) load.left += 1;
      else load.unexplained.push(`${named}: ${thrown}`);
    }
  }
  return load;
}

/**
 * The counters of failures; retries under one name, since which connection is drawn from the pool is chance.
 */
const injectedBy = ({ counters }: Cell): string[] => [
  ...Object.keys(counters['decryptFailures'] ?? {}).map((code) => `decryptFailures.${code}`),
  ...['truncatedStreams', 'upstreamRetries'].filter((name) => counters[name] !== undefined),
];

function difference(response: ChatResponse, { text, expected }: Job): string | undefined {
  const { status, ended, terminal, error } = response;
  if (status !== expected.status || ended !== expected.ended)
    return `${status} ${ended} ${error?.code ?? ''} instead of ${expected.status} ${expected.ended}`;
  if (expected.shows === 'answer') {
    const isWhole = terminal && response.text === text;
    return isWhole ? undefined : `an answer of ${response.text.length} bytes, not whole`;
  }
  if (error === undefined) return 'no error is shown';
  return expected.code === undefined || error.code === expected.code ? undefined : `${error.code}`;
}
