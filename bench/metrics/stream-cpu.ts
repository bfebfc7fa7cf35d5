import { setTimeout as delay } from 'node:timers/promises';
import { openPaced, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { shuffled } from '../stats.ts';

const STREAMS = 100;
const PACE = 20;
/** ms that the upstream needs to seal all the streams before the first is due. */
const leadFor = (events: number): number => 400 + 0.04 * STREAMS * events;
const WARM_UP = 500;

/** CPU microseconds per event while that many streams of 50 events a second pass. */
export async function cpuPerEvent(
  target: Target,
  pid: number,
  seconds: number,
  count = STREAMS,
): Promise<number> {
  const events = seconds * (1000 / PACE) + 25; // some more than are counted
  const streams = await openPaced(target, {
    count,
    events,
    pace: PACE,
    lead: leadFor(events),
  });
  await Promise.all(streams.map((stream) => stream.reached(1)));
  await delay(WARM_UP);
  const arrived = (): number => streams.reduce((sum, { arrivals }) => sum + arrivals.length, 0);
  const [cpu, seen] = [cpuMicroseconds(pid), arrived()];
  await delay(seconds * 1000 - WARM_UP);
  const perEvent = (cpuMicroseconds(pid) - cpu) / (arrived() - seen);
  await Promise.all(streams.map(({ finished }) => finished));
  return perEvent;
}

export const streamCpu: Metric = {
  name: 'stream_cpu_per_token',
  rows: [
    {
      id: 'stream_cpu_per_token',
      title: 'CPU per token, 100 streams × 50 tokens/s',
      figure: '÷ (passthrough + 1.3 × limit)',
      bar: { limit: 0.95, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 2 },
  async round(subjects, quick) {
    const perEvent: Record<string, number> = {};
    for (const name of shuffled(['passthrough', 'ours', ...subjects.entered])) {
      const { target, pid } = await subjects.get(name);
      if (pid !== undefined) perEvent[name] = await cpuPerEvent(target, pid, quick ? 1.5 : 2.5);
    }
    const limit = await subjects.limit<{ type: 'opened'; perEvent: number }>({
      type: 'open',
      events: 10_000,
    });
    const { passthrough, ours } = perEvent as { passthrough: number; ours: number };
    const values = Object.entries({ ...perEvent, limit: limit.perEvent });
    return {
      figures: { stream_cpu_per_token: ours / (passthrough + 1.3 * limit.perEvent) },
      values: Object.fromEntries(values.map(([name, value]) => [`${name}, µs/event`, value])),
    };
  },
};
