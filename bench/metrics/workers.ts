import type { Metric } from '../metric.ts';
import { shuffled } from '../stats.ts';
import { saturate } from './stream-saturated.ts';

export const workers: Metric = {
  name: 'workers',
  rows: [
    {
      id: 'workers',
      title: 'Two workers: CPU per event, 16 streams as fast as they go',
      figure: '÷ one worker',
      bar: { limit: 1.05, kind: 'at most' },
    },
  ],
  rounds: { full: 7, quick: 0 },
  async round(subjects) {
    const perEvent: Record<string, number> = {};
    const values: Record<string, number> = {};
    for (const name of shuffled(['ours, 1 worker', 'ours, 2 workers'])) {
      const { target, pid } = await subjects.get(name);
      const found = await saturate(target, pid as number, 2_000);
      perEvent[name] = found.perEvent;
      values[`${name}, µs/event`] = found.perEvent;
      values[`${name}, events/s`] = found.rate;
    }
    return {
      figures: {
        workers: perEvent['ours, 2 workers']! / perEvent['ours, 1 worker']!,
      },
      values,
    };
  },
};
