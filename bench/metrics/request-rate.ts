import { setTimeout as delay } from 'node:timers/promises';
import { createEventCounter } from '../event-counter.ts';
import { chatBody, sealedChatBody } from '../fixtures.ts';
import { withFresh } from '../fresh.ts';
import { dial, requestHead, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds, monotonicMs } from '../processes.ts';
import { shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';

const IN_FLIGHT = 64;
const PROMPT = 1_000;
/**
 * Tokens that leave one by one, as a model's do. All at once, opening them alone would take longer than twice
 * the whole of passing them on.
 */
const PLAN = { events: 20, pace: 1, again: true };
/** ms until the load is steady, and ms that count. */
const [SETTLE, MEASURED] = [700, 2_000];

/**
 * Asks on and on over one connection, as agents do; gives the number of answers so far. Throws where one is
 * not whole.
 */
async function askOnAndOn(target: Target, request: Buffer) {
  const socket = await dial(target);
  const { promise: closed, resolve, reject } = Promise.withResolvers<void>();
  let answers = 0;
  let over = false;
  let events = 0;
  let counter = createEventCounter();
  socket.on('data', (chunk: Buffer) => {
    try {
      events += counter.feed(chunk);
    } catch (error) {
      return socket.destroy(error as Error);
    }
    if (!counter.ended) return;
    if (events !== PLAN.events + 1) return socket.destroy(new Error(`an answer of ${events} events`));
    answers += 1;
    if (over) return socket.end();
    [events, counter] = [0, createEventCounter()];
    socket.write(request);
  });
  socket.on('error', reject);
  socket.on('close', () => (over ? resolve() : reject(new Error('a connection was not kept'))));
  closed.catch(() => {}); // whoever ends it hears of it
  socket.write(request);
  return {
    answers: () => answers,
    end: () => {
      over = true;
      return closed;
    },
  };
}

interface Rate {
  readonly perSecond: number;
  /** By the subject's processor time: what it would be if it had all of its core. */
  readonly perCpuSecond: number;
}

/** Requests over connections that stay open, as many in flight as are open. */
async function rateOf({ target, pid }: Subject): Promise<Rate> {
  const body = (target.sealed ? sealedChatBody : chatBody)(PLAN, PROMPT);
  const request = Buffer.concat([Buffer.from(requestHead(target, PLAN, body.length)), body]);
  const connections = await Promise.all(Array.from({ length: IN_FLIGHT }, () => askOnAndOn(target, request)));
  const state = () => ({
    at: monotonicMs(),
    cpu: cpuMicroseconds(pid as number),
    answers: connections.reduce((sum, { answers }) => sum + answers(), 0),
  });
  await delay(SETTLE);
  const from = state();
  await delay(MEASURED);
  const to = state();
  await Promise.all(connections.map(({ end }) => end()));
  const answers = to.answers - from.answers;
  return {
    perSecond: (1e3 * answers) / (to.at - from.at),
    perCpuSecond: (1e6 * answers) / (to.cpu - from.cpu),
  };
}

export const requestRate: Metric = {
  name: 'request_rate',
  rows: [
    {
      id: 'request_rate',
      title: `Requests per second of one core, ${IN_FLIGHT} in flight on connections that are kept, 1 kB prompt, ${PLAN.events} tokens`,
      figure: '÷ passthrough',
      bar: { limit: 0.45, kind: 'at least' },
    },
  ],
  rounds: { full: 9, quick: 0 },
  async round(subjects, quick) {
    const names = ['passthrough', 'ours', ...subjects.entered];
    return withFresh(subjects, names, quick, async (warm) => {
      const found: Record<string, Rate> = {};
      for (const subject of shuffled(warm)) {
        if (subject.pid !== undefined) found[subject.name] = await rateOf(subject);
      }
      return {
        figures: { request_rate: found['ours']!.perCpuSecond / found['passthrough']!.perCpuSecond },
        values: Object.fromEntries(
          Object.entries(found).flatMap(([name, { perSecond, perCpuSecond }]) => [
            [`${name}, requests/s of its core`, perCpuSecond],
            [`${name}, share of its core`, perSecond / perCpuSecond],
          ]),
        ),
      };
    });
  },
};
