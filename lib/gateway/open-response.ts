/**
 * Opens an upstream response: a stream of its decrypted bytes, within the limits of its exchange. The attempt
 * (send-attempt.ts) opens an error that may ask for a retry, the last step (respond.ts) every other response.
 */
import type { Readable } from 'node:stream';
import type { UpstreamResponse } from '../network/upstream.ts';
import { type DecryptOptions, DecryptStream } from '../pipeline/decrypt-stream.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';

/** Passes bytes on as they are. */
export const UNENCRYPTED: Decrypter = {
  feed: (chunk) => chunk,
  end: () => new Uint8Array(),
  failure: undefined,
  finished: false,
  modelError: false,
  events: 0,
  usage: undefined,
};
type Room = ((bytes: number) => Promise<void> | undefined) | undefined;

import type { Translator } from '../responses-api/translator.ts';
import type { HeldRoom, Reservation } from './memory-budget.ts';
import type { Exchange } from './request-state.ts';

/**
 * The body of the response as a stream that decrypts it. `count`: where its bytes are counted; default: the
 * accounts of the exchange.
 */
export function openResponse(
  { deps, accounts }: Exchange,
  response: Readable,
  decrypter: Decrypter,
  on: Partial<Pick<DecryptOptions, 'count' | 'onFirstBytes' | 'onFailure'>> = {},
): DecryptStream {
  accounts.opened(decrypter);
  return new DecryptStream(response, decrypter, {
    count: accounts,
    clock: deps.clock,
    idleTimeout: deps.settings.streamIdleTimeout,
    signal: deps.terminate,
    ...on,
  });
}

/**
 * Opens a reservation for the response. It is released when the response is closed; at once if the client has
 * left.
 */
function responseReservation({ deps, res }: Exchange): Reservation | undefined {
  const reservation = deps.memory.responses?.open();
  if (res.destroyed) reservation?.release();
  else if (reservation !== undefined) res.once('close', reservation.release);
  return reservation;
}

/** Bytes that a translated stream reserves at a time, at least. */
const HELD_STEP = 64 * 1024;

/**
 * Reserves memory for the parts of the request that a translated response repeats. The response holds them
 * from now on, so the reservation of the request may be released. Rejects as Reservation.reserve does.
 */
export async function roomForRepeated(exchange: Exchange, translator: Translator): Promise<HeldRoom> {
  const reservation = responseReservation(exchange);
  const bytes = translator.held();
  await reservation?.reserve(bytes, exchange.life.signal);
  return { reservation, bytes };
}

/**
 * Reserves memory for a translated stream as its translation grows, beside the parts of the request that it
 * repeats.
 */
export function roomForHeld(translator: Translator, { reservation, bytes }: HeldRoom): () => void {
  let reserved = bytes;
  return () => {
    const more = translator.held() - reserved;
    if (reservation === undefined || more <= 0) return;
    const step = Math.max(more, HELD_STEP);
    reserved += step;
    reservation.grow(step);
  };
}

/** Reserves memory for a response that is kept whole: the announced length, or more if more arrives. */
export function roomForWhole(exchange: Exchange, { headers }: UpstreamResponse['response']): Room {
  const reservation = responseReservation(exchange);
  if (reservation === undefined) return undefined;
  const announced = Number(headers['content-length'] ?? 0);
  let arrived = 0;
  let reserved = 0;
  return (bytes) => {
    arrived += bytes;
    const more = Math.max(arrived, announced) - reserved;
    if (more <= 0) return undefined;
    reserved += more;
    return reservation.reserve(more, exchange.life.signal);
  };
}
