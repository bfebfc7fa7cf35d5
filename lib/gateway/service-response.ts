/** The last step of the chain: decrypts the upstream response and gives it to the application. */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { errorEvent } from '../api/error-response.ts';
import { listWithAliases } from '../api/model-names.ts';
import { Deadline } from '../clock.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { remoteHeaders, responseHeaders } from '../http-rules/headers.ts';
import { ForeignError, plainContentType, responseKind } from '../http-rules/response-kind.ts';
import { clientTooOld } from '../network/transport-errors.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { UNDECRYPTABLE } from '../observe/counters.ts';
import { overflowBody } from '../pipeline/context-overflow.ts';
import { decryptBody, MAX_BODY_BYTES } from '../pipeline/decrypt-body.ts';
import { EventDecrypter } from '../pipeline/decrypt-events.ts';
import { DecryptStream } from '../pipeline/decrypt-stream.ts';
import type { RequestFacts } from '../pipeline/decrypter.ts';
import { ClientGone, type Exchange, type ForwardedExchange, type SentAttempt } from './exchange.ts';
import { breakConnection, forCaller, noteBroken, respondError, respondWhole } from './own-response.ts';
import { LONGEST_PLAIN, readWhole } from './receive.ts';

type Encrypted = SentAttempt & { readonly cipher: RequestCipher };

/**
 * Gives the upstream response to the application. Of a response that is no stream, the application gets
 * nothing until the whole response is authentic. Rejects before anything is written if the application must
 * not see the response, and with ClientGone. A failure after the head ends a stream with an error event and
 * a visibly broken connection.
 */
export async function respond(exchange: ForwardedExchange, asked: RequestFacts, upstream: UpstreamResponse) {
  const { response, request } = upstream;
  const { endpoint } = exchange.match;
  const { cipher, epoch, errorBody } = exchange.attempt as Encrypted;
  const status = response.statusCode as number;
  const isError = status >= 400;
  if (isError) {
    const keyFrom = status === 401 ? keyOriginOf(exchange) : undefined;
    const level = status >= 500 ? 'error' : 'warn';
    exchange.log(level, { status, keyFrom }, 'The service answered with an error status');
  }
  const kind = responseKind(status, response.headers, endpoint.codec !== 'none', asked.streaming);
  if (kind instanceof PrivatemodeError) {
    request.destroy();
    if (kind instanceof ForeignError) return respondForeign(exchange, response, kind);
    throw kind;
  }
  if (kind === 'encrypted-stream') return respondStream(exchange, asked, response);
  const isPlain = kind === 'plain';
  const most = isPlain ? LONGEST_PLAIN : MAX_BODY_BYTES;
  const text = errorBody ?? (await readWhole(exchange, response, most)).bytes();
  let body: Buffer;
  if (isPlain) body = plainBody(exchange, response, text);
  else {
    try {
      const opening = decryptBody(endpoint, cipher, isError ? undefined : asked, text);
      const opened = opening instanceof Promise ? await opening : opening;
      body = opened.body;
      exchange.stats.usage = opened.usage;
    } catch (thrown) {
      const failure = asPrivatemodeError(thrown);
      if (!isError) throw failure;
      return respondForeign(exchange, response, new ForeignError(failure, status, cipher.hasReceived), text);
    }
    if (isError) body = overflowBody(body, status, exchange.format) ?? body;
    else if (exchange.translator !== undefined) {
      body = exchange.translator.body(body);
      exchange.responseRoom.grow(body.length);
    }
  }
  exchange.decrypted(body.length);
  const contentType = isPlain ? plainContentType(response.headers['content-type']) : 'application/json';
  const headers = headersOf(exchange, response, { contentType, epoch: isPlain ? undefined : epoch });
  respondWhole(exchange, { status, headers, body });
  exchange.authentic();
}

function plainBody(exchange: ForwardedExchange, response: IncomingMessage, text: Buffer): Buffer {
  const { aliases } = exchange.deps;
  const { endpoint, target } = exchange.match;
  refuseIfOurs(exchange, response, text);
  const isFirstList = endpoint.id === 'models' && !/[?&](?:after|after_id|before_id)=/.test(target);
  if (aliases === undefined || response.statusCode !== 200 || !isFirstList) return text;
  return listWithAliases(aliases, text) ?? text;
}

/** Throws client_too_old or api_key_rejected in place of an unauthenticated error that says the same. */
function refuseIfOurs(exchange: Exchange, { statusCode = 0 }: IncomingMessage, text: Uint8Array) {
  const { deps, operatorKey } = exchange;
  const tooOld = statusCode >= 400 ? clientTooOld(text, deps.settings.protocolVersion) : undefined;
  if (tooOld !== undefined) throw tooOld;
  if (statusCode !== 401 || operatorKey === undefined) return;
  deps.ownKeys?.refused(operatorKey.of, operatorKey.value);
  throw new PrivatemodeError('api_key_rejected', 'the service rejects the API key');
}

/** Where the request's key comes from: a text for the operator, which never has the key itself. */
function keyOriginOf({ deps, authorization, operatorKey }: ForwardedExchange): string | undefined {
  if (authorization === undefined) return 'none: the request left without a key';
  if (operatorKey === undefined) return 'the request itself';
  return operatorKey.of === undefined
    ? deps.key.origin?.()
    : 'the entry of the client in the file of --clients';
}

/** Replaces an error that is neither plain nor decrypted. The error keeps its status and loses its `text`. */
function respondForeign(exchange: Exchange, response: IncomingMessage, foreign: ForeignError, text?: Buffer) {
  const status = response.statusCode as number;
  if (!foreign.opened) refuseIfOurs(exchange, response, text ?? Buffer.alloc(0));
  exchange.failed(foreign, status);
  Object.assign(exchange.headers, remoteHeaders(response.headers, false));
  respondError(exchange, foreign, status);
}

/** If the body is not authentic, `epoch` is undefined, and a header marks the body as unauthenticated. */
type OfBody = Pick<Parameters<typeof responseHeaders>[0], 'contentType' | 'epoch'>;

function headersOf(exchange: ForwardedExchange, { headers }: IncomingMessage, body: OfBody) {
  const { match, format, requestId, headers: own } = exchange;
  const encrypted = match.endpoint.codec !== 'none';
  return responseHeaders({ format, requestId, headers, own, encrypted, ...body });
}

/** Gives the application an event stream. Each event is sent as soon as its chunk has been decrypted. */
async function respondStream(exchange: ForwardedExchange, asked: RequestFacts, response: IncomingMessage) {
  const { deps, res, match, translator, stats } = exchange;
  const { counters } = deps.metrics;
  const { cipher, epoch } = exchange.attempt as Encrypted;
  const headers = headersOf(exchange, response, { contentType: 'text/event-stream', epoch });
  Object.assign(headers, { 'cache-control': 'no-cache', 'x-accel-buffering': 'no' });
  res.writeHead(response.statusCode as number, headers);
  // The head is sent one turn later, so that events which have already arrived are sent with it.
  setImmediate(() => {
    if (stats.firstChunkAt === undefined && !res.writableEnded) res.flushHeaders();
  });

  const decrypter = new EventDecrypter(match.endpoint, cipher, asked);
  decrypter.sink = translator?.stream();
  exchange.decrypter = decrypter;
  const events = new DecryptStream({
    upstream: response,
    decrypter,
    clock: deps.clock,
    deadline: exchange.deadline,
    idleTimeout: deps.settings.streamIdleTimeout,
    heard: (bytes) => {
      stats.bytes.fromRemote += bytes;
      exchange.responseRoom.resize(decrypter.held + (translator?.held() ?? 0));
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
  if (streamKeepalive > 0) keepAlive(exchange, events, streamKeepalive);
  try {
    // `stream.pipeline` is not used, because it costs a short request a sixth more (bench row request_cpu).
    await new Promise<void>((resolve, reject) => {
      events.once('end', resolve);
      events.once('close', () => {
        if (!events.readableEnded) reject(new ClientGone());
      });
      events.pipe(res, { end: false });
    });
    events.removeAllListeners(); // some of these listeners hold the exchange (docs/architecture.md H25)
  } finally {
    stats.events = decrypter.events;
    stats.usage = decrypter.usage;
    stats.modelError = decrypter.modelError;
  }
  const { failure } = events;
  if (failure === undefined) {
    exchange.authentic();
    // A chat stream ends normally after an error of the service. A translated stream is broken off instead,
    // so that no client takes the stream for a whole Response.
    if (translator === undefined || !decrypter.modelError) return void res.end();
  }
  exchange.broken = true;
  const told = failure && forCaller(exchange, failure);
  const last = told && (translator?.fail(told) ?? errorEvent(told, exchange));
  stats.events = decrypter.events + Number(translator === undefined);
  res.write(last ?? '', () => breakConnection(exchange));
}

/**
 * Writes text that clients ignore whenever no event came for `interval` milliseconds, because clients and
 * intermediaries may close silent connections. Writes nothing while the client is behind with reading.
 */
function keepAlive({ res, deps, translator }: Exchange, events: Readable, interval: number): void {
  const silence = new Deadline(deps.clock);
  const write = (): void => {
    if (!res.writableNeedDrain) res.write(translator?.keepAlive() ?? ': keepalive\n\n');
    silence.wait(interval, write);
  };
  silence.wait(interval, write);
  events.on('data', () => silence.refresh());
  events.once('close', () => silence.cancel());
}
