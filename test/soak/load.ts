/** So many streams at a time, each followed by the next, and what became of them. */
import { Agent } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { ask, type ChatResponse } from '../faults/ask.ts';
import type { Job } from './plan.ts';

export interface Tally {
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
}

export interface Load {
  readonly tally: Tally;
  /** Runs for that long, then lets what runs end. */
  run(ms: number): Promise<void>;
}

/**
 * ms from the first stream of a stretch to the last: handshakes all at once would measure nothing but
 * themselves.
 */
const RAMP = 1_000;

export function createLoad(url: string, streams: number, nextJob: () => Job): Load {
  const tally: Tally = {
    requests: 0,
    complete: 0,
    left: 0,
    faults: 0,
    injected: new Map(),
    explained: new Set(),
    unexplained: [],
  };

  async function one(agent: Agent): Promise<void> {
    const job = nextJob();
    const { question, leavesAfter } = job;
    tally.requests += 1;
    // Timers that fire when nobody waits any more would keep the load alive.
    const departure = leavesAfter === undefined ? undefined : AbortSignal.timeout(leavesAfter);
    try {
      note(job, await ask(url, { ...question, agent, ...(departure && { signal: departure }) }));
    } catch (thrown) {
      if (departure?.aborted) tally.left += 1;
      else tally.unexplained.push(`${question.model}: ${thrown}`);
    }
  }

  function note({ question, text, expected }: Job, response: ChatResponse): void {
    const wrong = difference(response, text, expected);
    if (wrong !== undefined) {
      tally.unexplained.push(`${question.style} ${question.mode} ${question.model}: ${wrong}`);
      return;
    }
    if (question.model.includes('+')) {
      tally.faults += 1;
      for (const label of expected.log) tally.explained.add(label);
      for (const name of injectedBy(expected)) tally.injected.set(name, (tally.injected.get(name) ?? 0) + 1);
    } else tally.complete += 1;
  }

  return {
    tally,
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
}

/**
 * The counters of failures; retries under one name, since which connection is drawn from the pool is chance.
 */
function injectedBy({ counters }: Job['expected']): string[] {
  const { decryptFailures, truncatedStreams, upstreamRetries } = counters;
  return [
    ...Object.keys(decryptFailures ?? {}).map((code) => `decryptFailures.${code}`),
    ...(truncatedStreams === undefined ? [] : ['truncatedStreams']),
    ...(upstreamRetries === undefined ? [] : ['upstreamRetries']),
  ];
}

function difference(response: ChatResponse, text: string, expected: Job['expected']): string | undefined {
  const { status, ended, terminal, error } = response;
  if (status !== expected.status || ended !== expected.ended) {
    return `${status} ${ended} ${error?.code ?? ''} instead of ${expected.status} ${expected.ended}`;
  }
  if (expected.shows === 'answer') {
    return terminal && response.text === text
      ? undefined
      : `an answer of ${response.text.length} bytes, not whole`;
  }
  if (error === undefined) return 'no error is shown';
  if (expected.code !== undefined && error.code !== expected.code) return `${error.code}`;
  return undefined;
}
