import { withFresh } from '../fresh.ts';
import type { Metric } from '../metric.ts';
import { quantile } from '../stats.ts';
import { alone } from './first-token.ts';
import { cpuPerRequest } from './request-cpu.ts';
import { cpuPerEvent } from './stream-cpu.ts';

const WITHOUT = 'ours';
const FEATURES = {
  admin: ['Listener of its own for the administrator', 'ours, admin address'],
  receipts: ['Receipts', 'ours, receipts'],
  clients: ['Clients', 'ours, clients'],
} as const;
/** Those that have streams, that many each at the same time: the others do nothing at an event. */
const STREAMING: readonly string[] = [WITHOUT, FEATURES.receipts[1], FEATURES.clients[1]];
const STREAMS = 33;

const ratio = ['÷ ours without', (a: number, b: number): number => a / b] as const;
const difference = ['ms over ours without', (a: number, b: number): number => a - b] as const;
/** By the end of the row's id: its title, the value that it compares, and how. */
const MEASURES = {
  request_cpu: ['CPU per short request, one at a time', 'µs/request', ratio],
  cpu_per_token: [`CPU per token, ${STREAMS} streams × 50 tokens/s beside each other`, 'µs/event', ratio],
  first_token_p50: ['first token, one stream, p50', 'p50 ms', difference],
  first_token_p99: ['first token, one stream, p99', 'p99 ms', difference],
} as const;

const BARS: readonly (readonly [keyof typeof FEATURES, keyof typeof MEASURES, limit: number])[] = [
  ['admin', 'request_cpu', 1.05],
  ['receipts', 'request_cpu', 1.05],
  ['receipts', 'cpu_per_token', 1.05],
  ['receipts', 'first_token_p99', 0.5],
  ['clients', 'request_cpu', 1.05],
  ['clients', 'cpu_per_token', 1.03],
  ['clients', 'first_token_p50', 0.1],
];

/**
 * What each feature costs. A process that has served for the whole run beside one that started late, or two
 * that V8 happens to compile otherwise, differ by more than that; so all start afresh in each round.
 */
export const features: Metric = {
  name: 'features',
  rows: BARS.map(([feature, measure, limit]) => ({
    id: `${feature}_${measure}`,
    title: `${FEATURES[feature][0]}: ${MEASURES[measure][0]}`,
    figure: MEASURES[measure][2][0],
    bar: { limit, kind: 'at most' },
  })),
  rounds: { full: 9, quick: 0 },
  round(subjects, quick) {
    const names = [WITHOUT, ...Object.values(FEATURES).map(([, name]) => name)];
    return withFresh(subjects, names, quick, async (warm) => {
      const values: Record<string, number> = {};
      for (const [name, cpu] of Object.entries(await cpuPerRequest(warm, 800)))
        values[`${name}, µs/request`] = cpu;
      const streaming = warm.filter(({ name }) => STREAMING.includes(name));
      for (const [name, times] of Object.entries(await alone(streaming, 300))) {
        values[`${name}, p50 ms`] = quantile(times, 0.5);
        values[`${name}, p99 ms`] = quantile(times, 0.99);
      }
      await Promise.all(
        streaming.map(async ({ name, target, pid }) => {
          values[`${name}, µs/event`] = await cpuPerEvent(target, pid as number, 4, STREAMS);
        }),
      );
      const figures = BARS.map(([feature, measure]) => {
        const [, value, [, compare]] = MEASURES[measure];
        const [with_, without] = [FEATURES[feature][1], WITHOUT].map((name) => values[`${name}, ${value}`]!);
        return [`${feature}_${measure}`, compare(with_!, without!)] as const;
      });
      return { figures: Object.fromEntries(figures), values };
    });
  },
};
