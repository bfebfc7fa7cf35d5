import { askShortly, withFresh } from '../fresh.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';

/** Requests until it is another's turn: what else the machine does meets all of them alike. */
const TURN = 50;

/** CPU microseconds of each subject for a short stream, from the connection on, one request at a time. */
export async function cpuPerRequest(
  subjects: readonly Subject[],
  count: number,
): Promise<Record<string, number>> {
  const known = subjects.filter(({ pid }) => pid !== undefined);
  const spent = (): number[] => known.map(({ pid }) => cpuMicroseconds(pid as number));
  const before = spent();
  for (let asked = 0; asked < count; asked += TURN) {
    for (const { target } of shuffled(known)) for (let i = 0; i < TURN; i++) await askShortly(target);
  }
  // All that each did in the meantime: a collection may end in another's turn.
  const after = spent();
  return Object.fromEntries(known.map(({ name }, i) => [name, (after[i]! - before[i]!) / count]));
}

export const requestCpu: Metric = {
  name: 'request_cpu',
  rows: [
    {
      id: 'request_cpu',
      title: 'CPU per short request, one at a time',
      figure: '÷ passthrough',
      bar: { limit: 1.7, kind: 'at most' },
    },
  ],
  rounds: { full: 12, quick: 2 },
  async round(subjects, quick) {
    const names = ['passthrough', 'ours', ...subjects.entered];
    const perRequest = await withFresh(subjects, names, quick, (warm) =>
      cpuPerRequest(warm, quick ? 150 : 1_000),
    );
    return {
      figures: { request_cpu: perRequest['ours']! / perRequest['passthrough']! },
      values: Object.fromEntries(
        Object.entries(perRequest).map(([name, value]) => [`${name}, µs/request`, value]),
      ),
    };
  },
};
