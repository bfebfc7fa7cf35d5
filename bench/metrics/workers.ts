import { availableParallelism } from 'node:os';
import type { Metric, Row } from '../metric.ts';
import { shuffled } from '../stats.ts';
import { type Saturation, saturate } from './stream-saturated.ts';

const [ONE, TWO] = ['ours, 1 worker', 'ours, 2 workers'] as const;
/** Cores that two workers, upstream and generator need to be in nobody's way; with fewer the rate is that of the machine. */
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

/** Bursts before anything counts; each of two workers sees half of them. */
const WARM_UP = 6;
const warmth: Record<string, number> = {};

export const workers: Metric = {
  name: 'workers',
  rows: [availableParallelism() < ENOUGH ? CPU : RATE],
  rounds: { full: 5, quick: 0 },
  async round(subjects) {
    const found: Record<string, Saturation> = {};
    for (const name of shuffled([ONE, TWO])) {
      const { target, pid } = await subjects.get(name);
      for (; (warmth[name] ?? 0) < WARM_UP; warmth[name] = (warmth[name] ?? 0) + 1) {
        await saturate(target, pid, 1_000);
      }
      found[name] = await saturate(target, pid, 2_000);
    }
    const [one, two] = [found[ONE]!, found[TWO]!];
    return {
      figures: { workers: two.perEvent / one.perEvent, workers_rate: two.rate / one.rate },
      values: Object.fromEntries(
        Object.entries(found).flatMap(([name, { perEvent, rate }]) => [
          [`${name}, µs/event`, perEvent],
          [`${name}, events/s`, rate],
        ]),
      ),
    };
  },
};
