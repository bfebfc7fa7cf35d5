import { setTimeout as delay } from 'node:timers/promises';
import { openStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { shuffled } from '../stats.ts';

const STREAMS = 16;

export interface Saturation {
  /** CPU microseconds of the subject per event; NaN where they are not known. */
  readonly perEvent: number;
  /** Events per second of wall time, which on a small machine is that of upstream and generator as well. */
  readonly rate: number;
}

const cpuOf = (pid: number | undefined): number => (pid === undefined ? Number.NaN : cpuMicroseconds(pid));

/** 16 streams as fast as they go. */
export async function saturate(target: Target, pid: number | undefined, events: number): Promise<Saturation> {
  const begin = Date.now() + 300 + 0.04 * STREAMS * events;
  const streams = await Promise.all(
    Array.from({ length: STREAMS }, () => openStream(target, { events, start: Math.round(begin) })),
  );
  await delay(begin - Date.now() - 50);
  const cpu = cpuOf(pid);
  await Promise.all(streams.map(({ finished }) => finished));
  const last = Math.max(...streams.map(({ arrivals }) => arrivals.at(-1)!));
  const first = Math.min(...streams.map(({ arrivals }) => arrivals[0]!));
  const count = STREAMS * (events + 1);
  return {
    perEvent: (cpuOf(pid) - cpu) / count,
    rate: count / ((last - first) / 1000),
  };
}

export const streamSaturated: Metric = {
  name: 'stream_saturated',
  rows: [
    {
      id: 'stream_saturated',
      title: 'Events per CPU second, 16 streams as fast as they go',
      figure: '÷ limit',
      bar: { limit: 0.5, kind: 'at least' },
    },
  ],
  rounds: { full: 9, quick: 2 },
  async round(subjects, quick) {
    const values: Record<string, number> = {};
    for (const name of shuffled(['passthrough', 'ours', ...subjects.entered])) {
      const { target, pid } = await subjects.get(name);
      const { perEvent, rate } = await saturate(target, pid, quick ? 1_000 : 2_000);
      values[`${name}, µs/event`] = perEvent;
      values[`${name}, events/s`] = rate;
    }
    const limit = await subjects.limit<{ type: 'opened'; perEvent: number }>({
      type: 'open',
      events: 20_000,
    });
    values['limit, µs/event'] = limit.perEvent;
    return { figures: { stream_saturated: limit.perEvent / values['ours, µs/event']! }, values };
  },
};
