import { setTimeout as delay } from 'node:timers/promises';
import { openStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { quantile, shuffled } from '../stats.ts';

const PLAN = { events: 3, pace: 0 };
const STAGGER = 8;

async function firstToken(target: Target): Promise<number> {
  const stream = await openStream(target, PLAN);
  await stream.finished;
  return stream.arrivals[0]! - stream.askedAt;
}

/** ms to the first token, one request after the other. */
async function alone(target: Target, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) times.push(await firstToken(target));
  return times;
}

/** The same beside 50 paced streams, requests starting a few ms apart. */
async function staggered(target: Target, count: number): Promise<number[]> {
  const beside = await Promise.all(
    Array.from({ length: 50 }, () => openStream(target, { events: count, pace: 20, hold: true })),
  );
  await Promise.all(beside.map((stream) => stream.reached(1)));
  const times: Promise<number>[] = [];
  for (let i = 0; i < count; i++) {
    times.push(firstToken(target));
    await delay(STAGGER);
  }
  const found = await Promise.all(times);
  for (const { socket } of beside) socket.destroy();
  return found;
}

const WAYS = { alone, staggered };
const bars = { p50: 0.5, p99: 3 };

export const firstTokenAdded: Metric = {
  name: 'ttft_added',
  rows: (['alone', 'staggered'] as const).flatMap((way) =>
    (['p50', 'p99'] as const).map((percentile) => ({
      id: `ttft_added_${way}_${percentile}`,
      title: `First token, ${way === 'alone' ? 'one stream' : 'beside 50 streams'}, ${percentile}`,
      figure: 'ms over passthrough',
      bar: { limit: bars[percentile], kind: 'at most' as const },
    })),
  ),
  rounds: { full: 9, quick: 1 },
  async round(subjects, quick) {
    const values: Record<string, number> = {};
    for (const way of ['alone', 'staggered'] as const) {
      for (const name of shuffled(['direct', 'passthrough', 'ours', ...subjects.external])) {
        const { target } = await subjects.get(name);
        const times = await WAYS[way](target, quick ? 60 : 200);
        values[`${name}, ${way}, p50 ms`] = quantile(times, 0.5);
        values[`${name}, ${way}, p99 ms`] = quantile(times, 0.99);
      }
    }
    const figures = (['alone', 'staggered'] as const).flatMap((way) =>
      (['p50', 'p99'] as const).map((percentile) => [
        `ttft_added_${way}_${percentile}`,
        values[`ours, ${way}, ${percentile} ms`]! - values[`passthrough, ${way}, ${percentile} ms`]!,
      ]),
    );
    return { figures: Object.fromEntries(figures), values };
  },
};
