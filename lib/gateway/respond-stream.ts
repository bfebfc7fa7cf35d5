/** The last step of the chain for an event stream: decrypts it event by event. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { errorEvent } from '../api/error-response.ts';
import { type Clock, Deadline } from '../clock.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError } from '../errors.ts';
import { UNDECRYPTABLE } from '../observe/counters.ts';
import { EventDecrypter } from '../pipeline/decrypt-events.ts';
import { DecryptStream } from '../pipeline/decrypt-stream.ts';
import type { RequestFacts } from '../pipeline/decrypter.ts';
import { ClientGone, type ForwardedExchange } from './exchange.ts';
import { breakConnection, forCaller, noteBroken } from './own-response.ts';

/** Gives the application an event stream. Each event goes on as soon as its chunk has been decrypted. */
export async function respondStream(
  exchange: ForwardedExchange,
  asked: RequestFacts,
  response: IncomingMessage,
  headers: OutgoingHttpHeaders,
): Promise<void> {
  const { deps, res, match, translator, stats, responseRoom } = exchange;
  const { counters } = deps.metrics;
  const ofStream = { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
  res.writeHead(response.statusCode as number, { ...headers, ...ofStream });
  // Events that are there already leave in one piece with the head.
  setImmediate(() => res.writableEnded || res.flushHeaders());

  const decrypter = new EventDecrypter(match.endpoint, exchange.attempt?.cipher as RequestCipher, asked);
  const shown = translator?.decrypter(decrypter) ?? decrypter;
  exchange.decrypter = shown;
  const events = new DecryptStream(response, shown, {
    clock: deps.clock,
    deadline: exchange.deadline,
    idleTimeout: deps.settings.streamIdleTimeout,
    heard: (bytes) => {
      stats.bytes.fromRemote += bytes;
      if (translator !== undefined) responseRoom.growTo(translator.held());
    },
    decrypted: (bytes) => exchange.decrypted(bytes),
    failed: (failure) => {
      if (!UNDECRYPTABLE.has(failure.code)) counters.truncatedStreams += 1;
      noteBroken(exchange, failure);
    },
  });
  exchange.interruptBy((reason) => {
    if (reason instanceof ClientGone) events.destroy();
    else events.stop(asPrivatemodeError(reason));
  });
  const { streamKeepalive } = deps.settings;
  if (streamKeepalive > 0) keepAlive(events, res, streamKeepalive, deps.clock);
  try {
    // stream.pipeline makes an AbortController and an AbortError for each stream: with it a short request
    // costs a sixth more (bench row request_cpu).
    await new Promise<void>((resolve, reject) => {
      events.once('end', resolve);
      events.once('close', () => reject(new ClientGone())); // without 'end' before it
      events.pipe(res, { end: false });
    });
    events.removeAllListeners(); // some refer to the exchange (docs/hazards.md 25)
  } finally {
    counters.streamEvents += decrypter.events;
    stats.events = shown.events;
    stats.usage = decrypter.usage;
    stats.modelError = decrypter.modelError;
  }
  const { failure } = events;
  if (failure === undefined) {
    exchange.done(res.statusCode);
    exchange.authentic();
    // A chat ends normally if the service reports an error in it. A stream of the Responses API is then
    // broken, so that nobody takes its end for that of a whole Response.
    if (translator === undefined || !decrypter.modelError) return void res.end();
  }
  exchange.broken = true;
  const told = failure && forCaller(exchange, failure);
  const last = told && (translator?.fail(told) ?? errorEvent(told, exchange));
  stats.events = translator === undefined ? decrypter.events + 1 : shown.events;
  res.write(last ?? '', () => breakConnection(exchange));
}

/** Clients skip lines that begin with a colon. */
const COMMENT = ': keepalive\n\n';

/**
 * Writes a comment whenever the events were silent for `interval` ms, for programs on the way that close
 * silent connections. Not while the client is behind with reading.
 */
function keepAlive(events: Readable, res: ServerResponse, interval: number, clock: Clock): void {
  const silence = new Deadline(clock);
  const comment = (): void => {
    if (!res.writableNeedDrain) res.write(COMMENT);
    silence.wait(interval, comment);
  };
  silence.wait(interval, comment);
  events.on('data', () => silence.refresh());
  events.once('close', () => silence.cancel());
}
