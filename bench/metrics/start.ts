import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { openStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { monotonicMs } from '../processes.ts';
import { untilReady } from '../subjects.ts';

async function untilOpen({ port, host }: Target): Promise<void> {
  for (;;) {
    const socket = connect({ port, host });
    const opened = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (opened) return;
    await delay(3);
  }
}

/** When the first token of a request is there that was sent as soon as the port was open. */
async function firstToken(target: Target): Promise<number> {
  await untilOpen(target);
  const stream = await openStream(target, { events: 3 });
  await stream.finished;
  return stream.arrivals[0]!;
}

export const timeToReady: Metric = {
  name: 'start',
  rows: [
    {
      id: 'start',
      title: 'Start to /readyz 204, collateral cached',
      figure: 'ms',
      bar: { limit: 400, kind: 'at most' },
    },
    {
      id: 'ttft_cold',
      title: 'Start to the first token of a request that waited',
      figure: '÷ start to ready',
      bar: { limit: 1.3, kind: 'at most' },
    },
  ],
  rounds: { full: 9, quick: 2 },
  async round(subjects) {
    await subjects.get('ours'); // fills the cache
    const took: number[] = [];
    for (const until of [({ port }: Target) => untilReady(port).then(monotonicMs), firstToken]) {
      const from = monotonicMs();
      const subject = await subjects.fresh('ours', { place: 'anywhere', unready: true });
      took.push((await until(subject.target)) - from);
      await subject.stop();
    }
    const [ready, token] = took as [number, number];
    return {
      figures: { start: ready, ttft_cold: token / ready },
      values: { 'ready after, ms': ready, 'first token after, ms': token },
    };
  },
};
