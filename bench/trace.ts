/**
 * Imported into a subject before its own program (`--import`), and by the generator: keeps when each request
 * took which step, when garbage was collected, and when the event loop was late; all by the clock of the
 * machine. At SIGUSR2 it is written to the file that its own URL names. Numbers go into arrays made
 * beforehand: what else it kept would bring about collections of its own.
 */
import { subscribe } from 'node:diagnostics_channel';
import { openSync, readSync, writeFileSync } from 'node:fs';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { PerformanceObserver } from 'node:perf_hooks';

export interface Trace {
  /** What garbage collection took, and of which kind (node:perf_hooks.constants). */
  readonly collections: [from: number, to: number, kind: number][];
  /**
   * Of a timer that is due each ms, and how long the main thread has waited for a processor until then, in
   * ms.
   */
  readonly ticks: [at: number, waited: number][];
  /** Its number; the client's port, or the start in the plan that the service is asked for. */
  readonly steps: [step: number, key: number, at: number][];
}
export const [READ, BEGUN, SENT, ANSWERED] = [0, 1, 2, 3] as const;

/** Room for that many of each, several times what a run needs. */
const ROOM = 200_000;

function createTable<Row extends number[]>(width: Row['length']) {
  const numbers = new Float64Array(ROOM * width);
  let used = 0;
  return {
    add(...row: Row): void {
      for (const number of row) numbers[used++] = number;
    },
    rows: () =>
      Array.from({ length: used / width }, (_, i) => [...numbers.slice(i * width, (i + 1) * width)] as Row),
  };
}

export function startTrace(): () => Trace {
  const collections = createTable<Trace['collections'][number]>(3);
  const ticks = createTable<Trace['ticks'][number]>(2);
  const steps = createTable<Trace['steps'][number]>(3);
  const ahead = Number(process.hrtime.bigint()) / 1e6 - performance.now();
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const from = entry.startTime + ahead;
      const { kind } = (entry as unknown as { detail: { kind: number } }).detail;
      collections.add(from, from + entry.duration, kind);
    }
  }).observe({ entryTypes: ['gc'] });

  const account = openSync(`/proc/self/task/${process.pid}/schedstat`, 'r');
  const text = Buffer.alloc(64);
  setInterval(() => {
    readSync(account, text, 0, text.length, 0);
    let waited = 0;
    for (let at = text.indexOf(' ') + 1; text[at]! >= 48; at++) waited = 10 * waited + text[at]! - 48;
    ticks.add(performance.now() + ahead, waited / 1e6);
  }, 1).unref();

  const note = (channel: string, step: number, keyOf: (message: unknown) => number | undefined): void =>
    subscribe(channel, (message) => {
      const key = keyOf(message);
      if (key !== undefined) steps.add(step, key, performance.now() + ahead);
    });
  /** The start in a plan, as `modelOf` writes it. */
  const planned = (message: unknown): number | undefined => {
    const { request } = message as { request: ClientRequest };
    const found = /^bench\/\d+\/\d+\/(\d+)\//.exec(String(request.getHeader('privatemode-target-model')));
    return found === null ? undefined : Number(found[1]);
  };
  const port = (message: unknown) => (message as { request: IncomingMessage }).request.socket.remotePort;
  note('http.server.request.start', READ, port);
  note('http.client.request.created', BEGUN, planned);
  note('http.client.request.start', SENT, planned);
  note('http.client.response.finish', ANSWERED, planned);
  return () => ({ collections: collections.rows(), ticks: ticks.rows(), steps: steps.rows() });
}

const [file] = new URL(import.meta.url).searchParams.values();
if (file !== undefined) {
  const trace = startTrace();
  process.on('SIGUSR2', () => writeFileSync(file, `${JSON.stringify(trace())}\n`));
}
