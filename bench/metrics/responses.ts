import type { Metric } from '../metric.ts';
import { shuffled } from '../stats.ts';
import { warmed } from './first-token.ts';
import { cpuPerEvent } from './stream-cpu.ts';

const SUBJECT = 'ours, responses';
const APIS = ['chat', 'Responses API'] as const;

/**
 * What it costs that the stream of a chat goes out as that of a Response: the same program, asked by the one
 * API and by the other.
 */
export const responses: Metric = {
  name: 'responses',
  rows: [
    {
      id: 'responses_cpu_per_token',
      title: 'Responses API: CPU per token, 100 streams × 50 tokens/s',
      figure: '÷ chat',
      bar: { limit: 1.12, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 0 },
  async round(subjects, quick) {
    const { target, pid } = await warmed(subjects, SUBJECT);
    const perEvent: Record<string, number> = {};
    for (const api of shuffled(APIS)) {
      const asked = { ...target, responses: api !== 'chat' };
      perEvent[api] = await cpuPerEvent(asked, pid as number, quick ? 1.5 : 2.5);
    }
    return {
      figures: { responses_cpu_per_token: perEvent['Responses API']! / perEvent['chat']! },
      values: Object.fromEntries(APIS.map((api) => [`${api}, µs/event`, perEvent[api]!])),
    };
  },
};
