/** From a model's answer to an encrypted one (docs/protocol/inference.md 6): the server's side of sealing. */

import type { Endpoint } from './endpoints.ts';
import { type Sealer, sealMembers } from './envelope.ts';
import type { ModelEvent, ModelResponse } from './models/response.ts';
import { errorBody, Rejection, UNENCRYPTED_ERROR_HEADERS } from './rejection.ts';
import type { Wire } from './wire.ts';

/** How the pieces of one response are made. The identity in place of sealing is for faults alone. */
export type Protect = (text: string) => string;

/** Protects the members of the endpoint's answers; `[DONE]` is no JSON and stays as it is. */
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

/** The response as it goes out. An empty body stays empty; a body that is not JSON throws Rejection. */
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

/** A response that is not encrypted: the body as it is. */
export const plainWire = (status: number, headers: Readonly<Record<string, string>>, body: string): Wire => ({
  status,
  headers,
  streaming: false,
  pieces: onePiece(body),
});

/** The refusal of the server, in clear, marked and in the OpenAI shape. */
export const rejectionWire = ({ status, message }: Rejection): Wire =>
  plainWire(status, UNENCRYPTED_ERROR_HEADERS, errorBody(message));
