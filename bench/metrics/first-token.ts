import { setTimeout as delay } from 'node:timers/promises';
import type { Plan } from '../fixtures.ts';
import { openStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { quantile, shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';

const PLAN = { events: 3, pace: 0 };
const STAGGER = 8;
const PACE = 20;
/** ms for the streams beside to become a steady load. */
const SETTLE = 400;
const WARM_UP = 5;

/** ms from the request to its first token. */
async function firstToken(target: Target, plan: Partial<Plan> = PLAN): Promise<number> {
  const stream = await openStream(target, plan);
  await stream.finished;
  return stream.arrivals[0]! - stream.askedAt;
}

type Times = Record<string, readonly number[]>;

/**
 * ms to the first token, one request at a time; the subjects take turns, so that a disturbance meets all of
 * them.
 */
async function alone(subjects: readonly Subject[], count: number): Promise<Times> {
  const times = Object.fromEntries(subjects.map(({ name }) => [name, [] as number[]]));
  for (let i = 0; i < WARM_UP + count; i++) {
    for (const { name, target } of shuffled(subjects)) {
      const time = await firstToken(target);
      if (i >= WARM_UP) times[name]!.push(time);
    }
  }
  return times;
}

/** ms to the first token, asked for a few ms apart beside 50 paced streams. */
async function besideStreams(target: Target, count: number): Promise<readonly number[]> {
  // enough for the whole time, with some to spare
  const events = Math.ceil((SETTLE + 2 * STAGGER * count) / PACE);
  const beside = await Promise.all(
    Array.from({ length: 50 }, () => openStream(target, { events, pace: PACE, hold: true })),
  );
  await Promise.all(beside.map((stream) => stream.reached(1)));
  await delay(SETTLE);
  const asked: Promise<number>[] = [];
  for (let i = 0; i < WARM_UP + count; i++) {
    asked.push(firstToken(target));
    await delay(STAGGER);
  }
  const found = (await Promise.all(asked)).slice(WARM_UP);
  for (const { socket } of beside) socket.destroy();
  return found;
}

async function staggered(subjects: readonly Subject[], count: number): Promise<Times> {
  const times: Record<string, readonly number[]> = {};
  for (const { name, target } of shuffled(subjects)) times[name] = await besideStreams(target, count);
  return times;
}

const WAYS = { alone, staggered };
const KINDS = (['alone', 'staggered'] as const).flatMap((way) =>
  (['p50', 'p99'] as const).map((percentile) => ({ way, percentile })),
);
const BARS = { alone: { p50: 0.5, p99: 3 }, staggered: { p50: 0.45, p99: 3 } };
/** The tail beside other streams is the machine's too: held against the pass-through's own. */
const TAIL = { way: 'staggered', percentile: 'p99' } as const;
const titleOf = ({ way, percentile }: (typeof KINDS)[number]): string =>
  `First token, ${way === 'alone' ? 'one stream' : 'beside 50 streams'}, ${percentile}`;

export const firstTokenAdded: Metric = {
  name: 'ttft_added',
  rows: [
    ...KINDS.map((kind) => ({
      id: `ttft_added_${kind.way}_${kind.percentile}`,
      title: titleOf(kind),
      figure: 'ms over passthrough',
      bar: { limit: BARS[kind.way][kind.percentile], kind: 'at most' as const },
    })),
    {
      id: 'ttft_tail',
      title: titleOf(TAIL),
      figure: '÷ passthrough',
      bar: { limit: 1.2, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 2 },
  async round(all, quick) {
    const values: Record<string, number> = {};
    const subjects = await Promise.all(['direct', 'passthrough', 'ours', ...all.entered].map(all.get));
    for (const way of ['alone', 'staggered'] as const) {
      const found = await WAYS[way](subjects, quick ? 40 : 200);
      for (const [name, times] of Object.entries(found)) {
        values[`${name}, ${way}, p50 ms`] = quantile(times, 0.5);
        values[`${name}, ${way}, p99 ms`] = quantile(times, 0.99);
      }
    }
    const of = (name: string, { way, percentile }: (typeof KINDS)[number]): number =>
      values[`${name}, ${way}, ${percentile} ms`]!;
    const figures = KINDS.map((kind): [string, number] => [
      `ttft_added_${kind.way}_${kind.percentile}`,
      of('ours', kind) - of('passthrough', kind),
    ]);
    const tail = of('ours', TAIL) / of('passthrough', TAIL);
    return { figures: { ...Object.fromEntries(figures), ttft_tail: tail }, values };
  },
};
