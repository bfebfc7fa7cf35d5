/** The few statistics a benchmark on a noisy machine needs: medians, quantiles, and how far to trust them. */

/**
 * The value below which `q` (0..1) of the sorted values lie, interpolated. Throws RangeError without values.
 */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) throw new RangeError('no values');
  const sorted = values.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)]!;
  const high = sorted[Math.ceil(at)]!;
  return low + (high - low) * (at - Math.floor(at));
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

export interface Estimate {
  readonly median: number;
  /** Bootstrap 95 % interval of the median. */
  readonly low: number;
  readonly high: number;
}

const RESAMPLES = 2_000;

/** 0 ≤ x < 1, the same sequence for the same seed (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/**
 * The median of per-round figures and its bootstrap interval, all NaN without any. `random` gives numbers in
 * [0, 1); by default the same ones each time, so that a run has one interval.
 */
export function estimate(values: readonly number[], random = seededRandom(1)): Estimate {
  if (values.length === 0) return { median: Number.NaN, low: Number.NaN, high: Number.NaN };
  const medians = Array.from({ length: RESAMPLES }, () =>
    median(values.map(() => values[Math.floor(random() * values.length)]!)),
  );
  return {
    median: median(values),
    low: quantile(medians, 0.025),
    high: quantile(medians, 0.975),
  };
}

export interface Bar {
  readonly limit: number;
  readonly kind: 'at most' | 'at least';
}

/** `none`: there is no bar. */
export type Verdict = 'met' | 'missed' | 'unclear' | 'none';

/** An interval that reaches further than this share of the median to either side is wide. */
const WIDE = 0.1;

/**
 * Whether the bar is met. An interval that lies on one side of the bar decides, however wide it is; with the
 * bar inside it the median decides, unless the interval is wide (±10 % of the median): then nothing does, and
 * it is `unclear`.
 */
export function verdictOf({ median: middle, low, high }: Estimate, bar: Bar): Verdict {
  const good = (value: number): boolean => (bar.kind === 'at most' ? value <= bar.limit : value >= bar.limit);
  if (Number.isNaN(middle)) return 'unclear';
  const decided = good(low) === good(high);
  const wide = Math.max(high - middle, middle - low) > WIDE * Math.abs(middle);
  if (!decided && wide) return 'unclear';
  return good(middle) ? 'met' : 'missed';
}

/** How many times the bar the figure is; above 1 it is missed. */
export function excess(value: number, { limit, kind }: Bar): number {
  if (value === limit) return 1;
  return kind === 'at most' ? value / limit : limit / value;
}

/** Slope of the least-squares line through the points. */
export function slope(points: readonly (readonly [number, number])[]): number {
  const n = points.length;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / n;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / n;
  const above = points.reduce((sum, [x, y]) => sum + (x - meanX) * (y - meanY), 0);
  return above / points.reduce((sum, [x]) => sum + (x - meanX) ** 2, 0);
}

/** A shuffled copy. */
export function shuffled<T>(items: readonly T[], random: () => number = Math.random): T[] {
  const copy = [...items];
  for (let i = copy.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [copy[i], copy[j]] = [copy[j]!, copy[i]!];
  }
  return copy;
}
