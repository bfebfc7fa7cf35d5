import { availableParallelism } from 'node:os';
import { openStream } from '../load.ts';
import type { Metric, Row } from '../metric.ts';
import { family, openSockets } from '../processes.ts';
import { median, shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';
import { type Saturation, saturate } from './stream-saturated.ts';

const [ONE, TWO] = ['ours, 1 worker', 'ours, 2 workers'] as const;
/**
 * Cores that two workers, upstream and generator need to be in nobody's way; with fewer the rate is that of
 * the machine.
 */
const ENOUGH = 4;
const CPU: Row = {
  id: 'workers',
  title: 'Two workers: CPU per event, 16 streams as fast as they go',
  figure: '÷ one worker',
  bar: { limit: 1.05, kind: 'at most' },
};
const RATE: Row = {
  id: 'workers_rate',
  title: 'Two workers: events/s, 16 streams as fast as they go',
  figure: '÷ one worker',
  bar: { limit: 1.7, kind: 'at least' },
};

const SPREAD: Row = {
  id: 'workers_spread',
  title: 'Two workers: the busier one, of 64 streams that stay',
  figure: '÷ half of them',
  bar: { limit: 1.3, kind: 'at most' },
};
const STAYING = 64;

/** How many times its even share of the connections the worker with most has. */
async function spread({ target, pid }: Subject): Promise<number> {
  const workers = family(pid as number).slice(1);
  const before = workers.map(openSockets);
  const streams = await Promise.all(
    Array.from({ length: STAYING }, () => openStream(target, { events: 1, hold: true })),
  );
  await Promise.all(streams.map((stream) => stream.reached(1)));
  const more = workers.map((worker, i) => openSockets(worker) - before[i]!);
  for (const { socket } of streams) socket.destroy();
  return (Math.max(...more) * more.length) / more.reduce((sum, count) => sum + count, 0);
}

/** Bursts before anything counts; each of two workers sees half of them. */
const WARM_UP = 6;
/** Of each in a round: where four processes share two cores, bursts of the same kind differ by a third. */
const REPEATS = 2;
const warmth: Record<string, number> = {};

export const workers: Metric = {
  name: 'workers',
  rows: [availableParallelism() < ENOUGH ? CPU : RATE, SPREAD],
  rounds: { full: 9, quick: 0 },
  async round(subjects) {
    const found: Record<string, readonly Saturation[]> = {};
    for (let i = 0; i < REPEATS; i++) {
      for (const name of shuffled([ONE, TWO])) {
        const { target, pid } = await subjects.get(name);
        for (; (warmth[name] ?? 0) < WARM_UP; warmth[name] = (warmth[name] ?? 0) + 1) {
          await saturate(target, pid, 1_000);
        }
        found[name] = [...(found[name] ?? []), await saturate(target, pid, 2_000)];
      }
    }
    const values = Object.fromEntries(
      Object.entries(found).flatMap(([name, bursts]) => [
        [`${name}, µs/event`, median(bursts.map(({ perEvent }) => perEvent))],
        [`${name}, events/s`, median(bursts.map(({ rate }) => rate))],
      ]),
    );
    const twoToOne = (what: string): number => values[`${TWO}, ${what}`]! / values[`${ONE}, ${what}`]!;
    const figures = {
      workers: twoToOne('µs/event'),
      workers_rate: twoToOne('events/s'),
      workers_spread: await spread(await subjects.get(TWO)),
    };
    return { figures, values };
  },
};
