/**
 * Sends an encrypted response: what is written, when, and how it may break off. Faults change these values;
 * only `deliver` touches the connection.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pause } from './pacing.ts';

/** A response as bytes: one piece per event of a stream, a single one for a unary response. */
export interface Wire {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** A stream has no Content-Length; a unary response has an exact one. */
  readonly streaming: boolean;
  readonly pieces: AsyncIterable<Buffer>;
}

/**
 * One step of delivery. A cut ends the delivery: `reset` by a TCP reset, `half` by closing the sending side.
 */
export type Step =
  | { readonly do: 'write'; readonly bytes: Buffer }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'cut'; readonly how: 'reset' | 'half' };

export type Steps = AsyncIterable<Step>;

/** A wire with its pieces complete and its Content-Length known. */
export interface Framed extends Wire {
  readonly steps: Steps;
}

async function* writes(pieces: AsyncIterable<Buffer>): AsyncGenerator<Step> {
  for await (const bytes of pieces) yield { do: 'write', bytes };
}

/** Collects a unary response to learn its length; streams stay lazy. */
export async function frame(wire: Wire): Promise<Framed> {
  if (wire.streaming) return { ...wire, steps: writes(wire.pieces) };
  const body: Buffer[] = [];
  for await (const piece of wire.pieces) body.push(piece);
  const whole = Buffer.concat(body);
  const single = (async function* () {
    if (whole.length > 0) yield whole;
  })();
  return {
    ...wire,
    headers: { ...wire.headers, 'Content-Length': String(whole.length) },
    pieces: single,
    steps: writes(single),
  };
}

/** ms to wait before a cut, so that the last bytes reach the client: a reset overtakes unread bytes. */
const SETTLE_MS = 20;

async function write(response: ServerResponse, bytes: Buffer, signal: AbortSignal): Promise<void> {
  if (!response.write(bytes)) await once(response, 'drain', { signal });
}

/** The connection to deliver a response to. */
export interface Delivery {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Aborts when the client leaves. */
  readonly signal: AbortSignal;
  /** Resets the connection. */
  readonly reset: () => void;
  /** Called after each piece is written. */
  readonly written: () => void;
}

/**
 * Sends the head and takes the steps, no faster than the client reads. Rejects with AbortError if the client
 * leaves.
 */
export async function deliver(framed: Framed, delivery: Delivery): Promise<void> {
  const { request, response, signal, reset, written } = delivery;
  response.writeHead(framed.status, { ...framed.headers });
  if (framed.streaming) response.flushHeaders();
  for await (const step of framed.steps) {
    if (step.do === 'write') {
      await write(response, step.bytes, signal);
      written();
    } else if (step.do === 'wait') {
      await pause(step.ms, signal);
    } else {
      response.flushHeaders();
      await pause(SETTLE_MS, signal);
      if (step.how === 'reset') reset();
      else request.socket.end();
      return;
    }
  }
  response.end();
}
