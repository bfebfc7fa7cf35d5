import { setTimeout as delay } from 'node:timers/promises';
import { openStream, type RunningStream } from '../load.ts';
import type { Metric } from '../metric.ts';
import { quantile, shuffled } from '../stats.ts';

/** What most benchmarks of LLM proxies ask of their mock: 64 chunks, 20 ms apart. */
const MOCK = { events: 64, pace: 20 };
const STREAMS = { full: 100, quick: 20 };
/** ms between the beginnings of two streams. */
const STAGGER = 13;

/** First token and whole response of such streams, of which some hundred run at a time. */
export const fieldMock: Metric = {
  name: 'field_mock',
  rows: [],
  rounds: { full: 9, quick: 0 },
  async round(subjects, quick) {
    const values: Record<string, number> = {};
    for (const name of shuffled(['direct', 'passthrough', 'ours', ...subjects.entered])) {
      const { target } = await subjects.get(name);
      const streams: RunningStream[] = [];
      for (let i = 0; i < STREAMS[quick ? 'quick' : 'full']; i++) {
        streams.push(await openStream(target, MOCK));
        await delay(STAGGER);
      }
      await Promise.all(streams.map(({ finished }) => finished));
      const times = (event: number): number[] =>
        streams.map(({ arrivals, askedAt }) => arrivals.at(event)! - askedAt);
      values[`${name}, first token, p50 ms`] = quantile(times(0), 0.5);
      values[`${name}, first token, p99 ms`] = quantile(times(0), 0.99);
      values[`${name}, whole, p50 ms`] = quantile(times(-1), 0.5);
    }
    return { figures: {}, values };
  },
};
