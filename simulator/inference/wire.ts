/**
 * Encrypts a model's response (docs/protocol/inference.md 6) and sends it: what is written, when, and how it
 * may break off. Faults change these values; only `deliver` touches the connection.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Endpoint } from './endpoints.ts';
import { type Sealer, sealMembers } from './envelope.ts';
import type { Change, Place } from './faults/intervention.ts';
import type { ArmedFault } from './faults.ts';
import type { ModelEvent, ModelResponse } from './models/response.ts';
import { pause } from './pacing.ts';
import { errorBody, Rejection, UNENCRYPTED_ERROR_HEADERS } from './rejection.ts';

/** Bytes to write, or ms to wait; or the end, by a TCP reset or by closing the sending side. */
export type Step = Buffer | { readonly wait: number } | 'reset' | 'half';

/** A response as bytes: one piece per event of a stream, a single one for a unary response. */
export interface Wire {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** A stream has no Content-Length; a unary response has an exact one. */
  readonly streaming: boolean;
  readonly pieces: AsyncIterable<Step>;
}

async function* onePiece(bytes: Buffer): AsyncGenerator<Buffer> {
  if (bytes.length > 0) yield bytes;
}

/** A response with its body in clear. */
export const plainWire = (status: number, headers: Readonly<Record<string, string>>, body: string): Wire => ({
  status,
  headers,
  streaming: false,
  pieces: onePiece(Buffer.from(body)),
});

/** The server's refusal: in clear, marked, and in the OpenAI shape. */
export const rejectionWire = ({ status, message }: Rejection): Wire =>
  plainWire(status, UNENCRYPTED_ERROR_HEADERS, errorBody(message));

/** The pieces as a fault changes them; other steps, of faults before it, stay as they are. */
export async function* changed<Piece extends object, Out>(
  items: AsyncIterable<Piece | Out>,
  change: Change<Piece, Out>,
  place: Omit<Place, 'index'>,
): AsyncGenerator<Piece | Out> {
  let index = 0;
  for await (const item of items) {
    if (typeof item !== 'object' || item === null || 'wait' in item) {
      yield item;
      continue;
    }
    for (const out of change(item as Piece, { ...place, index: index++ })) {
      if (out === 'end') return;
      yield out;
    }
  }
}

/** Encrypts one text of a response. For faults and for endpoints without encryption it is the identity. */
type Protect = (text: string) => string;

export const inClear: Protect = (text) => text;

/** Protects the members of an endpoint's responses. A text that is not JSON throws Rejection. */
export function protectWith({ plainResponse }: Endpoint, seal: Sealer): Protect {
  return (text) => {
    try {
      return sealMembers(text, plainResponse, seal);
    } catch (cause) {
      if (!(cause instanceof SyntaxError)) throw cause;
      throw new Rejection(500, 'encrypting response: decoding JSON: invalid body');
    }
  };
}

/** `[DONE]` is not JSON and stays as it is. */
async function* eventPieces(events: AsyncIterable<ModelEvent>, protect: Protect): AsyncGenerator<Buffer> {
  for await (const { event, data } of events) {
    const name = event === undefined ? '' : `event: ${event}\n`;
    yield Buffer.from(`${name}data: ${data === '[DONE]' ? data : protect(data)}\n\n`);
  }
}

/** The response for the wire. An empty body stays empty. */
export function wireOf(answer: ModelResponse, protect: Protect): Wire {
  if (answer.kind === 'unary') {
    const body = answer.body === '' ? '' : protect(answer.body);
    return plainWire(answer.status, { 'Content-Type': 'application/json' }, body);
  }
  return {
    status: answer.status,
    headers: { 'Content-Type': 'text/event-stream; charset=utf-8', 'Cache-Control': 'no-cache' },
    streaming: true,
    pieces: eventPieces(answer.events, protect),
  };
}

/** The model's response as these faults change it. */
export async function altered(
  response: ModelResponse,
  faults: readonly Pick<ArmedFault, 'ofModel' | 'streams'>[],
): Promise<ModelResponse> {
  const isWhole = response.kind === 'unary';
  async function* whole(data: string): AsyncGenerator<ModelEvent> {
    yield { data };
  }
  let events = isWhole ? whole(response.body) : response.events;
  for (const { ofModel, streams } of faults) {
    if (ofModel === undefined || (streams && isWhole)) continue;
    events = changed<ModelEvent, ModelEvent>(events, ofModel, { isWhole, terminal: '' });
  }
  if (!isWhole) return { ...response, events };
  for await (const { data } of events) return { ...response, body: data };
  return response;
}

/** Collects a unary response to learn its length; streams stay lazy. */
export async function framed(wire: Wire): Promise<Wire> {
  if (wire.streaming) return wire;
  const body: Buffer[] = [];
  for await (const piece of wire.pieces) body.push(piece as Buffer);
  const whole = Buffer.concat(body);
  const headers = { ...wire.headers, 'Content-Length': String(whole.length) };
  return { ...wire, headers, pieces: onePiece(whole) };
}

/** ms to wait before a cut, so that the last bytes reach the client: a reset overtakes unread bytes. */
const SETTLE_MS = 20;

/** Sends the head and takes the steps, no faster than the client reads. Rejects if the client leaves. */
export async function deliver(
  wire: Wire,
  request: IncomingMessage,
  response: ServerResponse,
  /** `written` is called after each piece. `signal` aborts when the client leaves. */
  { signal, reset, written }: { signal: AbortSignal; reset: () => void; written: () => void },
): Promise<void> {
  response.writeHead(wire.status, { ...wire.headers });
  if (wire.streaming) response.flushHeaders();
  for await (const step of wire.pieces) {
    if (step === 'reset' || step === 'half') {
      response.flushHeaders();
      await pause(SETTLE_MS, signal);
      if (step === 'reset') reset();
      else request.socket.end();
      return;
    }
    if ('wait' in step) await pause(step.wait, signal);
    else if (step.length > 0) {
      if (!response.write(step)) await once(response, 'drain', { signal });
      written();
    }
  }
  response.end();
}
