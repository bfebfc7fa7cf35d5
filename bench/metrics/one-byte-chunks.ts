import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { chatBody, modelOf, sealedChatBody } from '../fixtures.ts';
import { dial, type Target } from '../load.ts';
import type { Metric } from '../metric.ts';
import {
  cpuMicroseconds,
  forgetPeak,
  importing,
  monotonicMs,
  peakBytes,
  residentBytes,
} from '../processes.ts';
import { shuffled } from '../stats.ts';
import type { Subjects } from '../subjects.ts';

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
      `Authorization: Bearer bench\r\nPrivatemode-Target-Model: ${modelOf(PLAN)}\r\n` +
      'Transfer-Encoding: chunked\r\n\r\n',
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

/** A fresh subject whose event loop is watched. */
export async function startWatched(subjects: Subjects, name: string, directory: string) {
  const file = join(directory, 'hold');
  const subject = await subjects.fresh(name, { execArgv: [importing('loop-hold.ts', file)] });
  return { ...subject, holds: () => holdsOf(subject.pid as number, file) };
}

/**
 * ms of the longest hold of a subject's event loop since it was asked last, and of that which one of a
 * thousand exceeds.
 */
async function holdsOf(pid: number, file: string): Promise<{ longest: number; p999: number }> {
  rmSync(file, { force: true });
  process.kill(pid, 'SIGUSR2');
  for (let waited = 0; waited < 10_000; waited++) {
    const line = read(file);
    if (line.endsWith('\n')) {
      const [longest, p999] = line.split(' ').map(Number) as [number, number];
      return { longest, p999 };
    }
    await delay(1);
  }
  throw new Error('the subject does not tell how long it held its event loop');
}

function read(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return ''; // not written yet
  }
}

interface Found {
  /** ms: the longest hold of the first such body of a process, and of a later one. */
  readonly first: number;
  readonly hold: number;
  /** ms of the slowest small request during a third one. */
  readonly slowest: number;
  readonly idle: number;
  readonly peak: number;
  /** Microseconds for each piece. */
  readonly cpu: number;
}

async function measure(subjects: Subjects, name: string, directory: string): Promise<Found> {
  const { target, pid, holds, stop } = await startWatched(subjects, name, directory);
  const process = pid as number;
  try {
    const body = target.sealed ? sealedChatBody(PLAN, BYTES / 2) : chatBody(PLAN, BYTES);
    const chunks = inChunks(body);
    await holds();
    await sendChunks(target, chunks); // it compiles what the others run
    const { longest: first } = await holds();
    const idle = residentBytes(process);
    forgetPeak(process);
    const from = cpuMicroseconds(process);
    await sendChunks(target, chunks);
    const cpu = (cpuMicroseconds(process) - from) / body.length;
    const { longest: hold } = await holds();
    const peak = peakBytes(process);
    const slowest = await slowestDuring(target, sendChunks(target, chunks));
    return { first, hold, slowest, idle, peak, cpu };
  } finally {
    await stop();
  }
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
      title: 'Longest hold of the event loop meanwhile',
      figure: 'ms',
      bar: { limit: 50, kind: 'at most' },
    },
  ],
  rounds: { full: 5, quick: 0 },
  async round(subjects) {
    const directory = mkdtempSync(join(tmpdir(), 'privatemode-hold-'));
    const found: Record<string, Found> = {};
    try {
      for (const name of shuffled(['passthrough', 'ours'])) {
        found[name] = await measure(subjects, name, directory);
      }
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
    const { idle, peak, hold } = found['ours']!;
    return {
      figures: {
        one_byte_chunks_mem: (peak - idle) / (3 * BYTES + CONSTANT),
        one_byte_chunks_hold: hold,
      },
      values: {
        'ours, idle, MB': idle / 1e6,
        'ours, peak, MB': peak / 1e6,
        ...Object.fromEntries(
          Object.entries(found).flatMap(([name, each]) => [
            [`${name}, longest hold, ms`, each.hold],
            [`${name}, longest hold of the first body, ms`, each.first],
            [`${name}, slowest \`/healthz\`, ms`, each.slowest],
            [`${name}, CPU, µs per chunk`, each.cpu],
          ]),
        ),
      },
    };
  },
};
