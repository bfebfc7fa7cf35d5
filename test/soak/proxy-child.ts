/**
 * The proxy of a soak in a process of its own, run with --expose-gc: `node --expose-gc proxy-child.ts
 * FLAGS…`. It answers over IPC: `measure` with a Measurement, `close` with one taken after the proxy has
 * closed.
 */

import { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { queryObjects } from 'node:v8';
import { clockWith } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { type RunningProxy, startProxy } from '../../lib/proxy.ts';
import { TIMES, type Times } from '../../lib/times.ts';

export interface Measurement {
  /** Bytes, after garbage collection. */
  readonly heapUsed: number;
  readonly rss: number;
  /** What libuv knows of, by kind: sockets, timers that keep the process alive … */
  readonly resources: Readonly<Record<string, number>>;
  /** Live objects by class. */
  readonly objects: Readonly<Record<string, number>>;
  readonly listeners: number;
  readonly inFlight: number;
  /** Counters of failures, and renewals. */
  readonly counters: Readonly<Record<string, number>>;
  /** Log lines above info, by what they say. */
  readonly log: Readonly<Record<string, number>>;
  readonly warnings: readonly string[];
}

const tally = (items: readonly string[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const item of items) counts[item] = (counts[item] ?? 0) + 1;
  return counts;
};

const warnings: string[] = [];
process.on('warning', ({ name, message }) => {
  if (!message.includes('queryObjects')) warnings.push(`${name}: ${message}`); // ours, not the proxy's
});
const logged: string[] = [];

/** A line above info in one word, as the matrix names it. */
function noteLine(line: string): void {
  const { level, code, retry, status, condition, msg } = JSON.parse(line) as Record<
    string,
    string | undefined
  >;
  // A condition says once what the lines of the requests say each time.
  if ((level !== 'WARN' && level !== 'ERROR') || condition !== undefined) return;
  logged.push(
    code ?? (retry === undefined ? (status === undefined ? `${msg}` : `status ${status}`) : `retry ${retry}`),
  );
}

const CLASSES = { Socket, TLSSocket, IncomingMessage, ServerResponse, ClientRequest, AbortSignal };

/** ms in which a renewal that is under way ends, on a busy machine too. */
const RENEWAL = 2_000;
const LOOK_EVERY = 20;

/**
 * Waits until no timer keeps the process alive. A renewal holds one for each request that it sends, and one
 * may be under way at any moment. A timer that nobody clears is still there afterwards, and is counted.
 */
async function renewalOver(): Promise<void> {
  const giveUp = Date.now() + RENEWAL;
  while (Date.now() < giveUp && process.getActiveResourcesInfo().includes('Timeout')) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY));
  }
}

/**
 * What is held at rest. Signals of AbortSignal.any are let go by callbacks that run after a collection, and
 * only a later collection frees them: so the loop turns between the collections, and objects are counted
 * last.
 */
async function measure({ counters }: RunningProxy): Promise<Measurement> {
  const collect = globalThis.gc as () => void;
  for (let i = 0; i < 4; i++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await renewalOver();
  const objects = Object.fromEntries(
    Object.entries(CLASSES).map(([name, of]) => [
      name,
      queryObjects(of as never, { format: 'count' }) as unknown as number,
    ]),
  );
  const { heapUsed, rss } = process.memoryUsage();
  const sum = (map: ReadonlyMap<unknown, number>): number => [...map.values()].reduce((a, b) => a + b, 0);
  return {
    heapUsed,
    rss,
    resources: tally(process.getActiveResourcesInfo()),
    objects,
    listeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
    inFlight: counters.inFlight,
    counters: {
      truncatedStreams: counters.truncatedStreams,
      upstreamRetries: sum(counters.upstreamRetries),
      clientAborts: sum(counters.clientAborts),
      renewals: counters.attestations.get('accepted') ?? 0,
      ...Object.fromEntries([...counters.decryptFailures].map(([code, n]) => [`decryptFailures.${code}`, n])),
    },
    log: tally(logged),
    warnings,
  };
}

const { config } = parseConfig(process.argv.slice(2), {});
const proxy = await startProxy(config, {
  env: process.env,
  log: createLogger({ format: 'json', level: 30, output: { write: noteLine } }),
  clock: clockWith({ ...TIMES, ...(JSON.parse(process.env['SOAK_TIMES'] as string) as Partial<Times>) }),
});
process.on('message', async (request: 'measure' | 'close') => {
  if (request === 'close') {
    await proxy.close();
    // What closes does so within a turn or two of the loop.
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  process.send?.(await measure(proxy));
  if (request === 'close') process.disconnect?.();
});
process.send?.({ url: proxy.url });
