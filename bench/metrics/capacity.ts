import { gapsOf, openPaced, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { quantile, shuffled } from '../stats.ts';

const PACE = 100;
const EVENTS = 16;
/** Gaps of each stream that do not count: those of the time in which all begin. */
const WARM_UP = 4;
/** A slow core carries 250 of them. */
const FEWEST = 125;
/** Even generator and upstream by themselves are asked for no more. */
const MOST = 16_000;

/**
 * Whether that many streams of 10 tokens a second keep their pace: gap p99 up to twice the pace, and no
 * errors.
 */
async function keepsPace(target: Target, count: number): Promise<boolean> {
  const lead = 300 + 2 * count; // to connect all, and for the upstream to seal what they get
  try {
    const streams = await openPaced(target, { count, events: EVENTS, pace: PACE, lead });
    await Promise.all(streams.map(({ finished }) => finished));
    return (
      quantile(
        streams.flatMap((stream) => gapsOf(stream).slice(WARM_UP, EVENTS - 1)),
        0.99,
      ) <=
      2 * PACE
    );
  } catch {
    return false;
  }
}

/** The same with a second chance: it takes one disturbance from outside to fail. */
const carries = async (target: Target, count: number): Promise<boolean> =>
  (await keepsPace(target, count)) || keepsPace(target, count);

/**
 * The highest number of streams, up to `most`, that is carried: by doubling, then one step between; 0 for
 * none.
 */
async function capacity(target: Target, most: number): Promise<number> {
  let carried = 0;
  let next = FEWEST;
  while (next <= most && (await carries(target, next))) {
    carried = next;
    next *= 2;
  }
  const between = 1.5 * carried;
  return carried > 0 && between <= most && (await carries(target, between)) ? between : carried;
}

/** What generator and upstream carry by themselves, found once: more is not asked of anybody. */
let direct: Promise<number> | undefined;

export const streamsOnTwoCores: Metric = {
  name: 'streams_on_2_cores',
  rows: [
    {
      id: 'streams_on_2_cores',
      title: 'Streams of 10 tokens/s that keep their pace, upstream and generator on the other core',
      figure: '÷ passthrough',
      bar: { limit: 0.65, kind: 'at least' },
    },
  ],
  rounds: { full: 3, quick: 0 },
  async round(subjects) {
    const found: Record<string, number> = {};
    direct ??= subjects.get('direct').then(({ target }) => capacity(target, MOST));
    found['direct'] = await direct;
    for (const name of shuffled(['passthrough', 'ours', ...subjects.entered])) {
      found[name] = await capacity((await subjects.get(name)).target, found['direct']);
    }
    return {
      figures: { streams_on_2_cores: found['ours']! / found['passthrough']! },
      values: Object.fromEntries(Object.entries(found).map(([name, count]) => [`${name}, streams`, count])),
    };
  },
};
