/** The last step of the chain for an event stream: decrypts it event by event. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { errorEvent } from '../api/error-response.ts';
import { type Clock, Deadline } from '../clock.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError } from '../errors.ts';
import { EventDecrypter } from '../pipeline/decrypt-events.ts';
import { DecryptStream } from '../pipeline/decrypt-stream.ts';
import type { RequestFacts } from '../pipeline/decrypter.ts';
import type { Translator } from '../responses-api/translator.ts';
import { ClientGone, type ForwardedExchange, isUndecryptable } from './exchange.ts';
import { breakConnection, forCaller, noteBroken } from './own-response.ts';

/** What a request asks for. */
export interface Requested {
  /** The kind of response that the body asks for. */
  readonly asked: RequestFacts;
  /** Translates the response; undefined: it goes to the application as it was decrypted. */
  readonly translator: Translator | undefined;
}

/** Gives the application an event stream. Each event goes on as soon as its chunk has been decrypted. */
export async function respondStream(
  exchange: ForwardedExchange,
  { asked, translator }: Requested,
  { response, headers }: { readonly response: IncomingMessage; readonly headers: OutgoingHttpHeaders },
): Promise<void> {
  const { deps, res, match, stats, responseRoom } = exchange;
  const { counters } = deps.metrics;
  beginStream(res, response.statusCode as number, headers);

  const decrypter = new EventDecrypter(match.endpoint, exchange.attempt?.cipher as RequestCipher, asked);
  exchange.phase = 'before_first_token';
  exchange.decrypter = translator?.decrypter(decrypter) ?? decrypter;
  const events = new DecryptStream({
    upstream: response,
    decrypter: exchange.decrypter,
    clock: deps.clock,
    deadline: exchange.deadline,
    idleTimeout: deps.settings.streamIdleTimeout,
    heard: (bytes) => {
      exchange.heard(bytes);
      if (translator !== undefined) responseRoom.growTo(translator.held());
    },
    decrypted: (bytes) => {
      exchange.decrypted(bytes);
      exchange.phase = 'mid_stream';
    },
    failed: (failure) => {
      if (!isUndecryptable(failure)) counters.truncatedStreams += 1;
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
    await toClient(events, res);
  } finally {
    counters.streamEvents += decrypter.events;
    stats.events = translator?.events() ?? decrypter.events;
    stats.usage = decrypter.usage;
    stats.modelError = decrypter.modelError;
  }
  const { failure } = events;
  if (failure === undefined) {
    exchange.done(res.statusCode);
    exchange.authentic();
  }
  // A chat ends normally if the service reports an error in it. A stream of the Responses API is then broken,
  // so that nobody takes its end for that of a whole Response.
  if (failure === undefined && (translator === undefined || !decrypter.modelError)) {
    res.end();
    return;
  }
  exchange.broken = true;
  const told = failure && forCaller(exchange, failure);
  const last = told && (translator?.fail(told) ?? errorEvent(told, exchange));
  stats.events = translator?.events() ?? decrypter.events + 1;
  res.write(last ?? '', () => breakConnection(exchange));
}

/** Writes the head of a stream now. Events that are there already leave in one piece with it. */
function beginStream(res: ServerResponse, status: number, headers: OutgoingHttpHeaders): void {
  res.writeHead(status, { ...headers, 'cache-control': 'no-cache', 'x-accel-buffering': 'no' });
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());
}

/** Clients skip lines that begin with a colon. The blank line separates the comment from the next event. */
const COMMENT = ': keepalive\n\n';

/**
 * Writes a comment whenever the events were silent for `interval` ms, for programs on the way that close
 * silent connections. Not while the client is behind with reading: then an event may be written in part.
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

/**
 * Gives the application all that the stream delivers; the response stays open. Throws ClientGone if the
 * stream is destroyed. It does not use stream.pipeline, which makes an AbortController and an AbortError for
 * each stream: a short request would cost a sixth more (bench row request_cpu).
 */
async function toClient(stream: Readable, res: ServerResponse): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    stream.once('end', resolve);
    stream.once('close', () => {
      if (!stream.readableEnded) reject(new ClientGone());
    });
    stream.pipe(res, { end: false });
  });
  stream.removeAllListeners(); // some refer to the exchange (docs/hazards.md 25)
}
