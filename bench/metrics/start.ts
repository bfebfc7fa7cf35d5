import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { openStream, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { monotonicMs } from '../processes.ts';
import { shuffled } from '../stats.ts';
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

const MOMENTS: Readonly<Record<string, (target: Target) => Promise<number>>> = {
  ready: ({ port }) => untilReady(port).then(monotonicMs),
  'first token': firstToken,
};

export const timeToReady: Metric = {
  name: 'start',
  rows: [
    {
      id: 'start',
      title: 'Start to /readyz 204, collateral cached',
      figure: 'ms',
      bar: { limit: 340, kind: 'at most' },
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
    const values: Record<string, number> = {};
    for (const name of shuffled(subjects.builds)) {
      await subjects.get(name); // fills the cache
      for (const [what, until] of Object.entries(MOMENTS)) {
        const from = monotonicMs();
        const subject = await subjects.fresh(name, { place: 'anywhere', unready: true });
        values[`${name}, ${what} after ms`] = (await until(subject.target)) - from;
        await subject.stop();
      }
    }
    const ready = values['ours, ready after ms'] as number;
    return { figures: { start: ready, ttft_cold: values['ours, first token after ms']! / ready }, values };
  },
};
