import { openStream } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';

const PLAN = { events: 3, pace: 0 };
const WARM_UP = 100;

/** CPU microseconds of a subject for a short stream, from the connection on, one request at a time. */
async function cpuPerRequest({ target, pid }: Subject, count: number): Promise<number> {
  let before = 0;
  for (let i = -WARM_UP; i < count; i++) {
    if (i === 0) before = cpuMicroseconds(pid as number);
    await (await openStream(target, PLAN)).finished;
  }
  return (cpuMicroseconds(pid as number) - before) / count;
}

export const requestCpu: Metric = {
  name: 'request_cpu',
  rows: [
    {
      id: 'request_cpu',
      title: 'CPU per short request, one at a time',
      figure: '÷ passthrough',
      bar: { limit: 2, kind: 'at most' },
    },
    {
      id: 'request_cpu_before',
      title: 'CPU per short request, one at a time',
      figure: '÷ the build entered as `before`',
      bar: { limit: 0.6, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 2 },
  async round(subjects, quick) {
    const perRequest: Record<string, number> = {};
    for (const name of shuffled(['passthrough', 'ours', ...subjects.entered])) {
      const subject = await subjects.get(name);
      if (subject.pid !== undefined) perRequest[name] = await cpuPerRequest(subject, quick ? 150 : 400);
    }
    return {
      figures: {
        request_cpu: perRequest['ours']! / perRequest['passthrough']!,
        ...(perRequest['before'] === undefined
          ? {}
          : { request_cpu_before: perRequest['ours']! / perRequest['before'] }),
      },
      values: Object.fromEntries(
        Object.entries(perRequest).map(([name, value]) => [`${name}, µs/request`, value]),
      ),
    };
  },
};
