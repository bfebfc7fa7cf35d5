import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { chatBody } from '../fixtures.ts';
import { dial, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import { cpuMicroseconds, forgetPeak, monotonicMs, peakBytes, residentBytes } from '../processes.ts';

const BYTES = 1_000_000;
const PLAN = { unary: true };
/** What the garbage of one collection of young objects takes, whatever the size of the body. */
const CONSTANT = 48 * 1024 * 1024;

/** Each byte of the body as a chunk of its own. */
function inChunks(body: Buffer): Buffer {
  const chunks = Buffer.alloc(6 * body.length, '1\r\n.\r\n');
  for (let i = 0; i < body.length; i++) chunks[6 * i + 3] = body[i] as number;
  return Buffer.concat([chunks, Buffer.from('0\r\n\r\n')]);
}

/** Sends the body, and waits for the end of its answer. */
async function sendChunks(target: Target, chunks: Buffer): Promise<void> {
  const socket = await dial(target);
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nHost: ${target.host}:${target.port}\r\nContent-Type: application/json\r\n` +
      'Authorization: Bearer bench\r\nTransfer-Encoding: chunked\r\n\r\n',
  );
  socket.write(chunks);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  if (!answer.toString('latin1').startsWith('HTTP/1.1 200')) throw new Error(`answered with ${answer}`);
}

/** ms that the slowest of many small requests takes while `meanwhile` runs. */
async function slowestDuring(target: Target, meanwhile: Promise<unknown>): Promise<number> {
  const socket = await dial(target);
  let over = false;
  const done = meanwhile.finally(() => {
    over = true;
  });
  let slowest = 0;
  while (!over) {
    const from = monotonicMs();
    socket.write(`GET /healthz HTTP/1.1\r\nHost: ${target.host}\r\n\r\n`);
    await once(socket, 'data');
    slowest = Math.max(slowest, monotonicMs() - from);
    await delay(1);
  }
  socket.destroy();
  await done;
  return slowest;
}

export const oneByteChunks: Metric = {
  name: 'one_byte_chunks',
  rows: [
    {
      id: 'one_byte_chunks_mem',
      title: '1 MB in chunks of one byte, peak memory over idle',
      figure: '÷ (3 × body + 48 MiB)',
      bar: { limit: 1, kind: 'at most' },
    },
    {
      id: 'one_byte_chunks_hold',
      title: 'Slowest `/healthz` meanwhile',
      figure: 'ms',
      bar: { limit: 50, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 0 },
  async round(subjects) {
    const subject = await subjects.fresh('ours');
    const pid = subject.pid as number;
    try {
      const chunks = inChunks(chatBody(PLAN, BYTES));
      await sendChunks(subject.target, chunks); // the first compiles what the others run
      const idle = residentBytes(pid);
      forgetPeak(pid);
      const from = cpuMicroseconds(pid);
      const hold = await slowestDuring(subject.target, sendChunks(subject.target, chunks));
      const peak = peakBytes(pid);
      const cpu = cpuMicroseconds(pid) - from;
      return {
        figures: {
          one_byte_chunks_mem: (peak - idle) / (3 * BYTES + CONSTANT),
          one_byte_chunks_hold: hold,
        },
        values: { 'idle, MB': idle / 1e6, 'peak, MB': peak / 1e6, 'CPU, µs per chunk': cpu / BYTES },
      };
    } finally {
      await subject.stop();
    }
  },
};
