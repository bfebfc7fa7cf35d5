import { setTimeout as delay } from 'node:timers/promises';
import { openStream } from '../load.ts';
import type { Metric } from '../metric.ts';
import { message, monotonicMs, openSockets } from '../processes.ts';
import { quantile } from '../stats.ts';
import type { UpstreamNote } from '../upstream.ts';

type Closed = Extract<UpstreamNote, { type: 'closed' }>;

const SETTLE = 300;

export const cancel: Metric = {
  name: 'cancel',
  rows: [
    {
      id: 'cancel',
      title: 'Client leaves at the third token: upstream closed, p99',
      figure: 'ms',
      bar: { limit: 50, kind: 'at most' },
    },
    {
      id: 'cancel_leaks',
      title: 'Sockets left over by clients that left',
      figure: 'sockets',
      bar: { limit: 0, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 1 },
  async round(subjects, quick) {
    const { target, pid } = await subjects.get('ours');
    await delay(SETTLE);
    const before = openSockets(pid as number);
    const times: number[] = [];
    for (let i = 0; i < (quick ? 20 : 200); i++) {
      const since = monotonicMs();
      const closed = message<Closed>(subjects.upstream, 'closed', ({ at }) => at >= since);
      const stream = await openStream(target, { events: 100, pace: 2 });
      await stream.reached(3);
      const from = monotonicMs();
      stream.socket.destroy();
      times.push((await closed).at - from);
    }
    await delay(SETTLE);
    const left = Math.max(0, openSockets(pid as number) - before);
    return {
      figures: { cancel: quantile(times, 0.99), cancel_leaks: left },
      values: {
        'ours, p50 ms': quantile(times, 0.5),
        'ours, p99 ms': quantile(times, 0.99),
        'ours, sockets left': left,
      },
    };
  },
};
