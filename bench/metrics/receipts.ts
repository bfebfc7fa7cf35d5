import type { Metric } from '../metric.ts';
import { quantile, shuffled } from '../stats.ts';
import { alone, warmed } from './first-token.ts';
import { cpuPerEvent } from './stream-cpu.ts';

const [WITHOUT, WITH] = ['ours, started late', 'ours, receipts'] as const;

/** What it costs that each request gets a receipt: its body and its answer are hashed, and a line is signed and written. */
export const receipts: Metric = {
  name: 'receipts',
  rows: [
    {
      id: 'receipts_cpu_per_token',
      title: 'Receipts: CPU per token, 100 streams × 50 tokens/s',
      figure: '÷ without receipts',
      bar: { limit: 1.05, kind: 'at most' },
    },
    {
      id: 'receipts_first_token_p99',
      title: 'Receipts: first token, one stream, p99',
      figure: 'ms over that without receipts',
      bar: { limit: 0.5, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 0 },
  async round(subjects, quick) {
    const perEvent: Record<string, number> = {};
    for (const name of shuffled([WITHOUT, WITH])) {
      const { target, pid } = await warmed(subjects, name);
      if (pid !== undefined) perEvent[name] = await cpuPerEvent(target, pid, quick ? 1.5 : 2.5);
    }
    const times = await alone(await Promise.all([WITHOUT, WITH].map(subjects.get)), quick ? 40 : 160);
    const p99 = (name: string): number => quantile(times[name] ?? [], 0.99);
    return {
      figures: {
        receipts_cpu_per_token: perEvent[WITH]! / perEvent[WITHOUT]!,
        receipts_first_token_p99: p99(WITH) - p99(WITHOUT),
      },
      values: Object.fromEntries(
        [WITHOUT, WITH].flatMap((name) => [
          [`${name}, µs/event`, perEvent[name]!],
          [`${name}, p99 ms`, p99(name)],
        ]),
      ),
    };
  },
};
