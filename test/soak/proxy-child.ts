/**
 * The proxy of a soak in a process of its own, run with --expose-gc: `node --expose-gc proxy-child.ts
 * FLAGS…`. It answers over IPC: `measure` with a Measurement, `close` with one taken after the proxy has
 * closed.
 */
import { ClientRequest, ServerResponse } from 'node:http';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { queryObjects } from 'node:v8';
import { clockWith } from '../../lib/clock.ts';
import { parseConfig } from '../../lib/config/config.ts';
import { createLogger } from '../../lib/observe/log.ts';
import { startProxy } from '../../lib/proxy.ts';
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
  readonly logged: ReadonlySet<string>;
  readonly warnings: readonly string[];
}

const warnings: string[] = [];
process.on('warning', ({ name, message }) => {
  if (!message.includes('queryObjects')) warnings.push(`${name}: ${message}`); // ours, not the proxy's
});
const logged = new Set<string>();

/** A line above info in one word, as the matrix names it. */
function noteLine(line: string): void {
  const { level, code, retry, status, condition, msg } = JSON.parse(line);
  // A condition says once what the lines of the requests say each time.
  if ((level !== 'WARN' && level !== 'ERROR') || condition !== undefined) return;
  const rest = status === undefined ? msg : `status ${status}`;
  logged.add(code ?? (retry === undefined ? rest : `retry ${retry}`));
}

const CLASSES = [ServerResponse, ClientRequest, AbortSignal];

/** ms in which a renewal that is under way ends, on a busy machine too. */
const RENEWAL = 2_000;

const { config } = parseConfig(process.argv.slice(2), {});
const proxy = await startProxy(config, {
  env: process.env,
  log: createLogger({ format: 'json', level: 30, output: { write: noteLine } }),
  clock: clockWith({ ...TIMES, ...(JSON.parse(process.env['SOAK_TIMES'] as string) as Partial<Times>) }),
});

/**
 * What is held at rest. Signals of AbortSignal.any are let go by callbacks that run after a collection, and
 * only a later collection frees them: so the loop turns between the collections, and objects are counted
 * last. A renewal holds a timer for each request that it sends, and one may be under way at any moment: a
 * timer that nobody clears is still there afterwards, and is counted.
 */
async function measure(): Promise<Measurement> {
  const { counters } = proxy;
  for (let i = 0; i < 4; i++) {
    globalThis.gc?.();
    await turn();
  }
  const giveUp = Date.now() + RENEWAL;
  while (Date.now() < giveUp && process.getActiveResourcesInfo().includes('Timeout')) await delay(20);
  const count = (of: unknown): number => queryObjects(of as never, { format: 'count' }) as unknown as number;
  const objects = Object.fromEntries(CLASSES.map((of) => [of.name, count(of)]));
  const resources: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
  const { heapUsed, rss } = process.memoryUsage();
  return {
    ...{ heapUsed, rss, resources, objects, logged, warnings, inFlight: counters.inFlight },
    listeners: process.eventNames().reduce((sum, name) => sum + process.listenerCount(name), 0),
    counters: {
      truncatedStreams: counters.truncatedStreams,
      upstreamRetries: [...counters.upstreamRetries.values()].reduce((a, b) => a + b, 0),
      renewals: counters.attestations.get('accepted') ?? 0,
      ...Object.fromEntries([...counters.decryptFailures].map(([code, n]) => [`decryptFailures.${code}`, n])),
    },
  };
}

process.on('message', async (request: 'measure' | 'close') => {
  if (request === 'close') {
    await proxy.close();
    await delay(500); // what closes does so within a turn or two of the loop
  }
  process.send?.(await measure());
  if (request === 'close') process.disconnect?.();
});
process.send?.({ url: proxy.url });
