/** Encrypts a model's response: the server side of sealing (docs/protocol/inference.md 6). */

import type { Endpoint } from './endpoints.ts';
import { type Sealer, sealMembers } from './envelope.ts';
import type { ModelEvent, ModelResponse } from './models/response.ts';
import { errorBody, Rejection, UNENCRYPTED_ERROR_HEADERS } from './rejection.ts';
import type { Wire } from './wire.ts';

/**
 * Protects one text of a response. Normally this seals the text; for faults and for endpoints without
 * encryption it is the identity.
 */
export type Protect = (text: string) => string;

/** Protects the members of an endpoint's responses. `[DONE]` is not JSON and stays as it is. */
export function protectWith(endpoint: Endpoint, seal: Sealer): Protect {
  return (text) => {
    try {
      return sealMembers(text, endpoint.plainResponse, seal);
    } catch (cause) {
      if (cause instanceof SyntaxError) {
        throw new Rejection(500, 'encrypting response: decoding JSON: invalid body');
      }
      throw cause;
    }
  };
}

function eventText({ event, data }: ModelEvent, protect: Protect): string {
  const name = event === undefined ? '' : `event: ${event}\n`;
  return `${name}data: ${data === '[DONE]' ? data : protect(data)}\n\n`;
}

async function* eventPieces(events: AsyncIterable<ModelEvent>, protect: Protect): AsyncGenerator<Buffer> {
  for await (const event of events) yield Buffer.from(eventText(event, protect));
}

async function* onePiece(text: string): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}

/** The response for the wire. An empty body stays empty. A body that is not JSON throws Rejection. */
export function wireOf(answer: ModelResponse, protect: Protect): Wire {
  if (answer.kind === 'stream') {
    return {
      status: answer.status,
      headers: { 'Content-Type': 'text/event-stream; charset=utf-8', 'Cache-Control': 'no-cache' },
      streaming: true,
      pieces: eventPieces(answer.events, protect),
    };
  }
  return {
    status: answer.status,
    headers: { 'Content-Type': 'application/json' },
    streaming: false,
    pieces: onePiece(answer.body === '' ? '' : protect(answer.body)),
  };
}

/** A response with its body in clear. */
export const plainWire = (status: number, headers: Readonly<Record<string, string>>, body: string): Wire => ({
  status,
  headers,
  streaming: false,
  pieces: onePiece(body),
});

/** The server's refusal: in clear, marked, and in the OpenAI shape. */
export const rejectionWire = ({ status, message }: Rejection): Wire =>
  plainWire(status, UNENCRYPTED_ERROR_HEADERS, errorBody(message));
