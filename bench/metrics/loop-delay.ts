import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openPaced } from '../load.ts';
import type { Metric } from '../metric.ts';
import { shuffled } from '../stats.ts';
import type { Subjects } from '../subjects.ts';
import { startWatched } from './one-byte-chunks.ts';

const STREAMS = 50;
const PACE = 20;
/** ms until the first events: all streams are open by then. */
const LEAD = 500;
/** Events of streams beforehand, in which the compilers do their work. */
const WARM_UP = 75;

/** The holds of the event loop of a process of its own that has the streams. */
async function holdsUnder(subjects: Subjects, name: string, directory: string, events: number) {
  const { target, holds, stop } = await startWatched(subjects, name, directory);
  try {
    for (const count of [WARM_UP, WARM_UP, events]) {
      const streams = await openPaced(target, { count: STREAMS, events: count, pace: PACE, lead: LEAD });
      await delay(LEAD);
      await holds(); // what the start of the streams takes does not count
      await Promise.all(streams.map(({ finished }) => finished));
    }
    return await holds();
  } finally {
    await stop();
  }
}

export const loopDelay: Metric = {
  name: 'loop_delay',
  rows: [
    {
      id: 'loop_delay',
      title: 'Hold of the event loop, 50 streams × 20 ms, p99.9',
      figure: 'ms over passthrough',
      bar: { limit: 1, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 1 },
  async round(subjects, quick) {
    const directory = mkdtempSync(join(tmpdir(), 'privatemode-hold-'));
    const values: Record<string, number> = {};
    try {
      for (const name of shuffled(['passthrough', 'ours'])) {
        const { longest, p999 } = await holdsUnder(subjects, name, directory, quick ? 150 : 300);
        values[`${name}, p99.9 ms`] = p999;
        values[`${name}, longest ms`] = longest;
      }
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
    return {
      figures: { loop_delay: values['ours, p99.9 ms']! - values['passthrough, p99.9 ms']! },
      values,
    };
  },
};
