/**
 * Preloaded (`node --import`) into a program whose calls are to be followed: puts a call at the beginning of each function of lib that
 * FUNCTION_TRACE lists, and notes their order while it is told to. It talks over IPC: `start`, answered with `started`; `stop`, answered
 * with a Trace.
 */
import { subscribe } from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { registerHooks } from 'node:module';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** How a function has its name: it is declared with it (methods too), it is assigned to it, or it has none. */
export type Naming = 'declared' | 'assigned' | 'none';

/** A function as it stands in its file. */
export interface Place {
  readonly name: string;
  readonly naming: Naming;
  /** Where its body begins, in UTF-16 units: behind the brace, or at the expression. */
  readonly start: number;
  /** Where the expression ends that is its body; undefined: it has a block. */
  readonly end?: number;
}

/** What FUNCTION_TRACE names as JSON. */
export interface TraceOptions {
  readonly root: string;
  /** By path below `root`. */
  readonly files: Readonly<Record<string, readonly Place[]>>;
}

export type TracedCall = readonly [file: string, name: string, naming: Naming];

export interface Trace {
  /** In order. */
  readonly calls: readonly TracedCall[];
  /** How many of them came before the first byte was given to the application. */
  readonly beforeFirstByte: number;
}

const { root, files } = JSON.parse(
  readFileSync(process.env['FUNCTION_TRACE'] as string, 'utf8'),
) as TraceOptions;

const functions: TracedCall[] = [];
const sequence = new Int32Array(1_000_000);
let length = 0;
let beforeFirstByte = -1;
let on = false;

function traced(id: number): void {
  if (on && length < sequence.length) sequence[length++] = id;
}
Object.assign(globalThis, { functionTrace: traced });

/** The source with the calls in it. They are on the lines that were there, so line numbers stay. */
function withCalls(file: string, source: string, places: readonly Place[]): string {
  const inserted = places.flatMap(({ name, naming, start, end }) => {
    const call = `functionTrace(${functions.push([file, name, naming]) - 1})`;
    if (end === undefined) return [{ at: start, text: `${call};` }];
    return [
      { at: start, text: `(${call}, ` },
      { at: end, text: ')' },
    ];
  });
  // From the back, so that the places before stay. Several ends at one place are the same text.
  let text = source;
  for (const { at, text: piece } of inserted.sort((a, b) => b.at - a.at)) {
    text = text.slice(0, at) + piece + text.slice(at);
  }
  return text;
}

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    const places = url.startsWith('file:') ? files[relative(root, fileURLToPath(url))] : undefined;
    if (places === undefined || loaded.format !== 'module-typescript') return loaded;
    const file = relative(root, fileURLToPath(url));
    return { ...loaded, source: withCalls(file, String(loaded.source), places) };
  },
});

subscribe('http.server.request.start', (message) => {
  const { socket } = (message as { readonly request: IncomingMessage }).request;
  const { write } = socket;
  // Only the first write of the traced request counts; then the socket is as it was.
  socket.write = ((...args: Parameters<typeof write>) => {
    if (on && beforeFirstByte < 0) beforeFirstByte = length;
    socket.write = write;
    return write.apply(socket, args);
  }) as typeof write;
});

process.on('message', (message) => {
  if (message === 'start') {
    length = 0;
    beforeFirstByte = -1;
    on = true;
    process.send?.('started');
  }
  if (message === 'stop') {
    on = false;
    const calls = Array.from(sequence.subarray(0, length), (id) => functions[id]!);
    process.send?.({ calls, beforeFirstByte } satisfies Trace);
  }
});
