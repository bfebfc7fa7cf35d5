import { chatBody, sealedChatBody } from '../fixtures.ts';
import { dial, openStreamOn } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds } from '../processes.ts';
import { quantile, shuffled } from '../stats.ts';
import type { Subject } from '../subjects.ts';

const REQUESTS = 200;
const PLAN = { events: 3, pace: 0 };

/**
 * ms to the first token of the median request, and ms of CPU for all, of requests at once on connections to
 * the subject that are open.
 */
async function burst({ target, pid }: Subject): Promise<{ readonly p50: number; readonly cpu: number }> {
  const body = target.sealed ? sealedChatBody(PLAN) : chatBody(PLAN);
  const sockets = await Promise.all(Array.from({ length: REQUESTS }, () => dial(target)));
  const before = cpuMicroseconds(pid as number);
  const streams = sockets.map((socket) => openStreamOn(socket, target, PLAN, body));
  await Promise.all(streams.map(({ finished }) => finished));
  const times = streams.map(({ arrivals, askedAt }) => arrivals[0]! - askedAt);
  return { p50: quantile(times, 0.5), cpu: (cpuMicroseconds(pid as number) - before) / 1000 };
}

/**
 * What each new connection to the service costs: the subjects have just started, and no request has opened
 * any.
 */
export const coldBurst: Metric = {
  name: 'cold_burst',
  rows: [
    { id: 'cold_burst_p50', title: 'Cold burst of 200 requests: first token, p50', figure: '÷ passthrough' },
    { id: 'cold_burst_cpu', title: 'Cold burst of 200 requests: CPU', figure: '÷ passthrough' },
  ],
  rounds: { full: 9, quick: 2 },
  async round(subjects) {
    const found: Record<string, Awaited<ReturnType<typeof burst>>> = {};
    for (const name of shuffled(['passthrough', ...subjects.startable])) {
      const subject = await subjects.fresh(name);
      found[name] = await burst(subject);
      await subject.stop();
    }
    const { ours, passthrough } = found as Record<'ours' | 'passthrough', (typeof found)[string]>;
    return {
      figures: {
        cold_burst_p50: ours.p50 / passthrough.p50,
        cold_burst_cpu: ours.cpu / passthrough.cpu,
      },
      values: Object.fromEntries(
        Object.entries(found).flatMap(([name, { p50, cpu }]) => [
          [`${name}, p50 ms`, p50],
          [`${name}, CPU ms`, cpu],
        ]),
      ),
    };
  },
};
