import { gapsOf, openPaced } from '../load.ts';
import type { Metric } from '../metric.ts';
import { quantile, shuffled } from '../stats.ts';

const STREAMS = 50;
const PACE = 20;
/** Gaps of each stream that do not count. */
const WARM_UP = 10;
/** Of each subject's gaps, for the chart. */
export const PERCENTILES = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999];

export const interToken: Metric = {
  name: 'inter_token',
  rows: [
    {
      id: 'inter_token_p99',
      title: 'Gap between tokens, 50 streams × 20 ms, p99',
      figure: '÷ passthrough',
      bar: { limit: 1.15, kind: 'at most' },
    },
    {
      id: 'inter_token_p50',
      title: 'Gap between tokens, p50: below would be buffering',
      figure: '÷ direct',
      bar: { limit: 0.9, kind: 'at least' },
    },
  ],
  rounds: { full: 9, quick: 2 },
  async round(subjects, quick) {
    const values: Record<string, number> = {};
    for (const name of shuffled(['direct', 'passthrough', 'ours', ...subjects.entered])) {
      const { target } = await subjects.get(name);
      const events = quick ? 45 : 75;
      const streams = await openPaced(target, {
        count: STREAMS,
        events,
        pace: PACE,
        lead: 300 + 2 * events,
      });
      await Promise.all(streams.map(({ finished }) => finished));
      // The terminal event comes with the last token.
      const gaps = streams.flatMap((stream) => gapsOf(stream).slice(WARM_UP, events - 1));
      for (const p of PERCENTILES) values[`${name}, p${100 * p} ms`] = quantile(gaps, p);
    }
    return {
      figures: {
        inter_token_p99: values['ours, p99 ms']! / values['passthrough, p99 ms']!,
        inter_token_p50: values['ours, p50 ms']! / values['direct, p50 ms']!,
      },
      values,
    };
  },
};
