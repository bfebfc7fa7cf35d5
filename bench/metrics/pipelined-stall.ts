import { dial, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { median } from '../stats.ts';
import { PACE, worstDuring } from './neighbour-stall.ts';

const REQUESTS = 3_000;
const REPEATS = 3;
const STATUS = 'HTTP/1.1 404';

/** Sends all of them ahead of their responses, and waits for these. */
async function pipeline(target: Target): Promise<void> {
  const socket = await dial(target);
  const request = `GET /nothing HTTP/1.1\r\nHost: ${target.host}:${target.port}\r\n\r\n`;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let rest = '';
  let responses = 0;
  socket.on('data', (chunk: Buffer) => {
    const [before, ...after] = (rest + chunk.toString('latin1')).split(STATUS);
    responses += after.length;
    rest = (after.at(-1) ?? before ?? '').slice(1 - STATUS.length);
    if (responses === REQUESTS) resolve();
  });
  socket.on('close', () => reject(new Error(`${responses} of ${REQUESTS} requests were answered`)));
  socket.write(request.repeat(REQUESTS));
  await promise.finally(() => socket.destroy());
}

export const pipelinedStall: Metric = {
  name: 'pipelined_stall',
  rows: [
    {
      id: 'pipelined_stall',
      title: `Worst gap of 20 streams × 20 ms while a connection pipelines ${REQUESTS} requests`,
      figure: '÷ pace',
      bar: { limit: 3.5, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 1 },
  async round(subjects, quick) {
    const { target } = await subjects.get('ours');
    const worst: number[] = [];
    for (let i = 0; i < (quick ? 1 : REPEATS); i++)
      worst.push(await worstDuring(target, () => pipeline(target)));
    return { figures: { pipelined_stall: median(worst) / PACE }, values: { 'ours, ms': median(worst) } };
  },
};
