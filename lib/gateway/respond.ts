/** The last step of the chain: the upstream response, decrypted, to the application. */
import { errorEvent } from '../api/error-format.ts';
import type { ModelAliases } from '../api/model-aliases.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, type ErrorCode, PrivatemodeError } from '../errors.ts';
import { responseHeaders } from '../exchange/headers.ts';
import { responseKind } from '../exchange/response-head.ts';
import { plainContentType, readPlainError, unreadError } from '../exchange/unauthenticated.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { count } from '../observe/counters.ts';
import { createBodyDecrypter } from '../pipeline/decrypt-body.ts';
import { createEventDecrypter } from '../pipeline/decrypt-events.ts';
import { type DecryptOptions, DecryptStream, UNENCRYPTED } from '../pipeline/decrypt-stream.ts';
import type { Decrypter } from '../pipeline/decrypter.ts';
import type { Translator } from '../responses/translator.ts';
import type { Epoch } from '../session/session.ts';
import type { Exchange, ForwardedExchange } from './exchange.ts';
import type { Reservation } from './memory-budget.ts';
import { beginWhole, endAfterUpload, respondError, respondWhole } from './own-response.ts';
import { ClientGone } from './receive-body.ts';
import { noteFailure } from './request-log.ts';
import { keepStreamAlive } from './stream-keepalive.ts';

/** The outcome of an attempt, with everything needed to read it. */
export interface AttemptResponse extends UpstreamResponse {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /** Whether the request went out with the key of the proxy. */
  readonly ownKey: boolean;
  /** The body, where it was read already to decide about a retry. */
  readonly plainBody: Buffer | undefined;
}

/**
 * Reads the upstream response the way its head asks for and gives it to the application. Rejects, with nothing written, where
 * it must not be shown; once the head is out, a failure becomes an error event and a visibly broken connection.
 */
export async function respond(exchange: ForwardedExchange, upstream: AttemptResponse): Promise<void> {
  const { response, request } = upstream;
  const status = response.statusCode as number;
  const { encrypted, terminal } = exchange.match.endpoint;
  const streaming = terminal !== undefined && exchange.asked.streaming; // the others know no `stream`
  if (status >= 400) {
    const keyFrom = status === 401 && upstream.ownKey ? exchange.deps.keyOrigin?.() : undefined;
    const level = status >= 500 ? 'error' : 'warn';
    exchange.log[level]({ status, keyFrom }, 'The service answered with an error status');
  }
  const kind = responseKind(status, response.headers, encrypted, streaming);
  if (kind instanceof PrivatemodeError) {
    request.destroy();
    countFailure(exchange, kind);
    throw kind;
  }
  if (kind === 'plain') return respondPlain(exchange, upstream);
  // An error as a stream, where the API has none, is no JSON either: only its status is shown.
  if (kind === 'encrypted-body' || terminal === undefined) return respondBody(exchange, upstream);
  return respondStream(exchange, upstream);
}

/** What nothing authenticates, errors and lists of models alike, is marked, so that nothing of a stranger's passes for ours. */
async function respondPlain(exchange: ForwardedExchange, upstream: AttemptResponse): Promise<void> {
  const { res } = exchange;
  const { response, plainBody } = upstream;
  const status = response.statusCode as number;
  const contentType = plainContentType(response.headers['content-type']);
  const headers = headersOf(exchange, upstream, { contentType, authenticated: false });
  const { aliases } = exchange.deps;
  const isList = status === 200 && (exchange.match.endpoint.id === 'models' || exchange.aboutModel);
  const body = plainBody ?? (isList && aliases && (await withAliases(exchange, response, aliases)));
  if (body) {
    respondWhole(exchange, { status, headers, body });
    finished(exchange);
    return;
  }
  const length = response.headers['content-length'];
  res.writeHead(status, { ...headers, ...(length === undefined ? {} : { 'content-length': length }) });
  const plain = decrypted(exchange, response, UNENCRYPTED, {
    onFailure: (failure) => noteBroken(exchange, failure),
  });
  await toClient(plain, exchange);
  if (plain.failure === undefined) {
    res.end();
    finished(exchange);
  } else breakConnection(exchange);
}

/** A list of models with the aliases in it, or the entry of one; a list that goes on after another has them already. Throws what reading it throws. */
async function withAliases(
  exchange: ForwardedExchange,
  response: UpstreamResponse['response'],
  aliases: ModelAliases,
): Promise<Buffer> {
  const plain = decrypted(exchange, response, UNENCRYPTED);
  const body = await readPlainError(plain);
  if (plain.failure !== undefined) throw plain.failure;
  const { aboutModel } = exchange;
  if (aboutModel !== undefined) return aliases.entryIn(body, aboutModel) ?? body;
  const isFurther = /[?&](?:after|after_id|before_id)=/.test(exchange.match.target);
  return (isFurther ? undefined : aliases.inList(body)) ?? body;
}

/** A whole JSON response: nothing is shown before all of it has authenticated. */
async function respondBody(exchange: ForwardedExchange, upstream: AttemptResponse): Promise<void> {
  const { response, cipher } = upstream;
  const status = response.statusCode as number;
  const asked = status < 400 ? exchange.asked : undefined;
  const decrypter = createBodyDecrypter(exchange.match.endpoint, cipher as RequestCipher, asked);
  const room = roomFor(exchange, response);
  const stream = decrypted(exchange, response, decrypter, { room });
  let pieces: Uint8Array[] = await stream.toArray();
  exchange.stats.usage = decrypter.usage;
  const { failure } = stream;
  if (failure === undefined) {
    const { translator } = exchange;
    if (translator !== undefined && status < 400) {
      pieces = [translatedBody(exchange, translator, pieces)];
      await room?.(pieces[0]!.length);
    }
    const headers = headersOf(exchange, upstream, { contentType: 'application/json', authenticated: true });
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    beginWhole(exchange, { status, headers, length });
    finished(exchange);
    // Piece by piece: it shows how much of it the client has taken.
    await writeAll(pieces, exchange);
    endAfterUpload(exchange.req, exchange.res);
    return;
  }
  countFailure(exchange, failure);
  if (status < 400) throw failure;
  // An error whose text does not authenticate keeps its status (and the hints for a retry), not its text.
  noteFailure(exchange, failure);
  const retryAfter = response.headers['retry-after'];
  const headers = retryAfter === undefined ? {} : { 'retry-after': retryAfter };
  respondError(exchange, unreadError(failure, status), { status, headers });
  count(exchange.deps.counters.responses, status);
}

function translatedBody(exchange: Exchange, translator: Translator, pieces: readonly Uint8Array[]): Buffer {
  const chat = Buffer.concat(pieces);
  try {
    const body = translator.body(chat);
    exchange.stats.bytes.toClient += body.length - chat.length;
    return body;
  } catch (thrown) {
    const failure = asPrivatemodeError(thrown);
    countFailure(exchange, failure);
    throw failure;
  }
}

/** Opens a reservation for the response; it is free when the client has taken it. */
function responseReservation({ deps, res, over }: Exchange): Reservation | undefined {
  const reservation = deps.responseBudget?.open();
  if (over) reservation?.release();
  else if (reservation !== undefined) res.once('close', reservation.release);
  return reservation;
}

/** Bytes; a stream that is translated reserves so many at a time. */
const HELD_STEP = 64 * 1024;

/** The memory of a stream that is translated, by what the chunks before have left there. */
function roomForHeld(exchange: Exchange, translator: Translator): DecryptOptions['room'] {
  const reservation = responseReservation(exchange);
  let reserved = 0;
  return () => {
    const more = translator.held() - reserved;
    if (reservation === undefined || more <= 0) return undefined;
    const step = Math.max(more, HELD_STEP);
    reserved += step;
    return reservation.reserve(step, exchange.control.signal);
  };
}

/** The memory of a response that is kept whole: what it announces, or as much as comes. */
function roomFor(exchange: Exchange, { headers }: UpstreamResponse['response']): DecryptOptions['room'] {
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
    return reservation.reserve(more, exchange.control.signal);
  };
}

const NOTHING = Buffer.alloc(0);

/** An event stream: every event goes on as soon as its chunk has been decrypted. */
async function respondStream(exchange: ForwardedExchange, upstream: AttemptResponse): Promise<void> {
  const { res, deps, stats } = exchange;
  const { response, cipher } = upstream;
  res.writeHead(response.statusCode as number, {
    ...headersOf(exchange, upstream, { contentType: 'text/event-stream', authenticated: true }),
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
  // Now, and in one piece with the first events where these are there already.
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());

  const decrypter = createEventDecrypter(exchange.match.endpoint, cipher as RequestCipher, exchange.asked);
  exchange.phase = 'before_first_token';
  const { translator } = exchange;
  const events = decrypted(exchange, response, translator?.decrypter(decrypter) ?? decrypter, {
    room: translator && roomForHeld(exchange, translator),
    onFirstBytes: () => {
      exchange.phase = 'mid_stream';
      exchange.stage?.('first_event');
    },
    onFailure: (failure) => {
      countFailure(exchange, failure);
      if (!UNDECRYPTABLE.has(failure.code)) deps.counters.truncatedStreams += 1;
      noteBroken(exchange, failure);
    },
  });
  if (deps.streamKeepalive > 0) keepStreamAlive(events, res, deps.streamKeepalive);
  try {
    await toClient(events, exchange);
  } finally {
    deps.counters.streamEvents += decrypter.events;
    stats.events = translator?.events() ?? decrypter.events;
    stats.usage = decrypter.usage;
    stats.modelError = decrypter.modelError;
  }
  const { failure } = events;
  if (failure === undefined) finished(exchange);
  // A chat whose service told an error ends well; of a Response, nobody may take the end for that of a whole one.
  if (failure === undefined && (translator === undefined || !stats.modelError)) {
    res.end();
    return;
  }
  exchange.broken = true;
  const last = failure && (translator?.fail(failure) ?? errorEvent(failure, exchange));
  stats.events = translator?.events() ?? stats.events + 1;
  res.write(last ?? NOTHING, () => breakConnection(exchange));
}

/** The head towards the application; `authenticated`: whether the body is. */
const headersOf = (
  { format, requestId, headers, match }: ForwardedExchange,
  { response, epoch }: AttemptResponse,
  { contentType, authenticated }: { readonly contentType: string; readonly authenticated: boolean },
): Record<string, string | string[]> =>
  responseHeaders({
    format,
    requestId,
    rawHeaders: response.rawHeaders,
    contentType,
    own: headers,
    encrypted: match.endpoint.encrypted,
    epoch: authenticated ? epoch : undefined,
  });

/** The body of the response as a stream that decrypts it, within the limits of the exchange. */
export function decrypted(
  exchange: Exchange,
  response: UpstreamResponse['response'],
  decrypter: Decrypter,
  on: Partial<Pick<DecryptOptions, 'stats' | 'onFirstBytes' | 'onFailure' | 'room'>> = {},
): DecryptStream {
  const { deps, stats } = exchange;
  exchange.decrypter = decrypter;
  return new DecryptStream(response, decrypter, {
    stats,
    idleTimeout: deps.streamIdleTimeout,
    signal: deps.terminate,
    ...on,
  });
}

/** Logs the failure before the error event goes out: an application that does not read may leave before it. breakConnection follows. */
export function noteBroken(exchange: Exchange, failure: PrivatemodeError): void {
  exchange.broken = true;
  noteFailure(exchange, failure);
}

/**
 * Gives the application all that the stream delivers; the response stays open. Throws ClientGone where the application left. With
 * stream.pipeline, which makes an AbortController and an AbortError for each, a short request costs a sixth more (bench row request_cpu).
 */
async function toClient(stream: DecryptStream, { res }: Exchange): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const left = (): void => {
      res.off('close', left);
      stream.destroy();
      reject(new ClientGone());
    };
    res.once('close', left);
    stream.once('close', left);
    stream.once('end', () => {
      res.off('close', left);
      stream.off('close', left); // follows
      resolve();
    });
    if (res.destroyed) left();
    else stream.pipe(res, { end: false });
  });
  stream.removeAllListeners(); // some lead to the exchange (docs/hazards.md 25)
}

/** Writes the pieces as fast as the application takes them. Throws ClientGone where it left. */
async function writeAll(pieces: readonly Uint8Array[], { res }: Exchange): Promise<void> {
  for (const piece of pieces) {
    if (!res.destroyed && !res.write(piece)) await drained(res);
    if (res.destroyed) throw new ClientGone();
  }
}

/** Resolves, too, when the connection is gone. */
const drained = (res: Exchange['res']): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      res.off('drain', done);
      res.off('close', done);
      resolve();
    };
    res.on('drain', done);
    res.on('close', done);
  });

/** The codes of responses that came and could not be decrypted. Any other code means that the response was cut off. */
const UNDECRYPTABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'response_not_authentic',
  'response_not_encrypted',
  'response_malformed',
  'response_too_large',
]);

function countFailure({ deps }: Exchange, { code }: PrivatemodeError): void {
  if (UNDECRYPTABLE.has(code)) count(deps.counters.decryptFailures, code);
}

function finished(exchange: Exchange): void {
  count(exchange.deps.counters.responses, exchange.res.statusCode);
  exchange.stage?.('done');
}

/** The end of an exchange that failed before its response was complete; never throws. */
export function concludeFailed(exchange: Exchange, thrown: unknown): void {
  const { res, deps, match } = exchange;
  if (thrown instanceof ClientGone || res.destroyed) {
    res.destroy();
    return;
  }
  const error = asPrivatemodeError(thrown);
  if (res.headersSent) {
    noteBroken(exchange, error);
    breakConnection(exchange);
  } else {
    noteFailure(exchange, error);
    respondError(exchange, error);
    if (match !== undefined) count(deps.counters.responses, res.statusCode);
  }
}

/** Ends the connection, as noteBroken has noted, so that no client can take what it got for a complete response. */
export function breakConnection({ res }: Exchange): void {
  // Without chunked framing, as for HTTP/1.0 clients, an ordinary close would look like the end of the body.
  const { socket } = res;
  if (res.chunkedEncoding || socket === null || 'encrypted' in socket) res.destroy();
  else socket.resetAndDestroy();
}
