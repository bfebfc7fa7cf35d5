import { setTimeout as delay } from 'node:timers/promises';
import { dial, openStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { median, quantile, shuffled } from '../stats.ts';
import type { Subjects } from '../subjects.ts';
import { alone } from './first-token.ts';
import { cpuPerEvent } from './stream-cpu.ts';

const PAIRS = {
  one: ['ours', 'ours, clients'],
  two: ['ours, 2 workers', 'ours, clients, 2 workers'],
} as const;
const FULL = 'ours, clients, 64 in flight';
/** The first token of a model that thinks is the second event of ours: the first one leaves at once. */
const PLAN = { events: 2, pace: 300 };
const REFUSALS = 400;

/** ms to the first token of a client that asks again and again, beside `others` requests of another one at any time. */
async function besideFlood(target: Target, others: number, count: number): Promise<number[]> {
  let over = false;
  const one = async (i: number): Promise<void> => {
    await delay((i * PLAN.pace) / others); // spread from the start, as they will be
    while (!over) await (await openStream({ ...target, token: 'flood' }, PLAN)).finished;
  };
  const flood = Promise.all(Array.from({ length: others }, (_, i) => one(i)));
  await delay(3 * PLAN.pace);
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const stream = await openStream(target, PLAN);
    await stream.finished;
    times.push(stream.arrivals[1]! - stream.askedAt);
  }
  over = true;
  await flood;
  return times;
}

/** CPU microseconds for a request without a known token, whose body never comes. */
async function cpuPerRefusal({ target, pid }: Awaited<ReturnType<Subjects['get']>>): Promise<number> {
  const before = cpuMicroseconds(pid as number);
  for (let i = 0; i < REFUSALS; i++) {
    const socket = await dial(target);
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: ${target.host}\r\nContent-Length: 1000000\r\n\r\n`,
    );
    const [status] = (await socket.take(1).toArray()) as [Buffer];
    if (!/^HTTP\/1\.1 4(?:01|29) /.test(status.toString('latin1'))) throw new Error('it was not refused');
    socket.destroy();
  }
  return (cpuMicroseconds(pid as number) - before) / REFUSALS;
}

/** What it costs that clients are known and limited, and what a flood of one costs another. */
export const clients: Metric = {
  name: 'clients',
  rows: [
    {
      id: 'clients_cpu_per_token',
      title: 'Twenty clients with limits: CPU per token, 100 streams × 50 tokens/s',
      figure: '÷ without clients',
      bar: { limit: 1.03, kind: 'at most' },
    },
    {
      id: 'clients_first_token',
      title: 'Twenty clients with limits: first token, one stream, p50',
      figure: 'ms over that without clients',
      bar: { limit: 0.1, kind: 'at most' },
    },
    {
      id: 'clients_workers_first_token',
      title: 'The same with two workers',
      figure: 'ms over that without clients',
      bar: { limit: 0.5, kind: 'at most' },
    },
    {
      id: 'clients_flood',
      title: 'First token after 300 ms, beside a client that floods 64 places, p99',
      figure: '÷ beside 48 requests that fit',
      bar: { limit: 1.2, kind: 'at most' },
    },
    {
      id: 'clients_refusal',
      title: 'A request without a known token',
      figure: 'ms of CPU, its connection included',
      bar: { limit: 1, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 0 },
  async round(subjects, quick) {
    const values: Record<string, number> = {};
    for (const name of shuffled(PAIRS.one)) {
      const { target, pid } = await subjects.get(name);
      values[`${name}, µs/event`] = await cpuPerEvent(target, pid as number, quick ? 1.5 : 2.5);
    }
    for (const pair of Object.values(PAIRS)) {
      const times = await alone(await Promise.all(pair.map(subjects.get)), quick ? 40 : 80);
      for (const [name, each] of Object.entries(times)) values[`${name}, p50 ms`] = median(each);
    }
    // As many answers a second in both, so that the flood differs only in what waits.
    const { target } = await subjects.get(FULL);
    for (const [what, others] of shuffled([
      ['flood', 256],
      ['fits', 48],
    ] as const)) {
      values[`beside ${what}, p99 ms`] = quantile(await besideFlood(target, others, quick ? 10 : 25), 0.99);
    }
    values['refusal, µs'] = await cpuPerRefusal(await subjects.get(PAIRS.one[1]));
    const overOf = ([without, with_]: readonly [string, string]): number =>
      values[`${with_}, p50 ms`]! - values[`${without}, p50 ms`]!;
    return {
      figures: {
        clients_cpu_per_token: values[`${PAIRS.one[1]}, µs/event`]! / values[`${PAIRS.one[0]}, µs/event`]!,
        clients_first_token: overOf(PAIRS.one),
        clients_workers_first_token: overOf(PAIRS.two),
        clients_flood: values['beside flood, p99 ms']! / values['beside fits, p99 ms']!,
        clients_refusal: values['refusal, µs']! / 1000,
      },
      values,
    };
  },
};
