/** The last step of the chain: decrypts the upstream response and gives it to the application. */

import { Readable } from 'node:stream';
import { errorEvent } from '../api/error-response.ts';
import { type AliasTable, entryOfAlias, listWithAliases } from '../api/model-aliases.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { remoteHeaders, responseHeaders } from '../http-rules/headers.ts';
import { responseKind } from '../http-rules/response-kind.ts';
import { ForeignError, plainContentType, unreadError } from '../http-rules/unauthenticated.ts';
import { clientTooOld, MOST_SEARCHED } from '../network/client-too-old.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { count } from '../observe/counters.ts';
import { overflowBody } from '../pipeline/context-overflow.ts';
import { decryptBody } from '../pipeline/decrypt-body.ts';
import { EventDecrypter } from '../pipeline/decrypt-events.ts';
import type { DecryptStream } from '../pipeline/decrypt-stream.ts';
import type { Translator } from '../responses-api/translator.ts';
import { type Accounts, isUndecryptable } from './accounts.ts';
import { ClientGone } from './life.ts';
import { openResponse, roomForHeld, roomForWhole, UNENCRYPTED } from './open-response.ts';
import {
  beginWhole,
  breakConnection,
  finishWhole,
  forCaller,
  noteBroken,
  piecesOf,
  respondError,
  respondWhole,
} from './own-response.ts';
import { keyOriginOf, noteOwnKey, ownKeyRefused } from './refused-key.ts';
import { type Exchange, type ForwardedExchange, ownHeaders, type Requested } from './request-state.ts';
import type { AttemptResponse } from './send-attempt.ts';
import { keepStreamAlive } from './stream-keepalive.ts';

/**
 * Reads the upstream response in the way that its head asks for, and gives it to the application. Rejects,
 * with nothing written, if the application must not see the response. Once the head is out, a failure ends
 * the response with a visibly broken connection, and in a stream with an error event before that. Rejects
 * with ClientGone if the application has left.
 */
export async function respond(
  exchange: ForwardedExchange,
  requested: Requested,
  upstream: AttemptResponse,
): Promise<void> {
  const { caller } = exchange;
  const { response, request } = upstream;
  const status = response.statusCode as number;
  const { encrypted, terminal } = exchange.match.endpoint;
  const streaming = terminal !== undefined && requested.asked.streaming; // other endpoints have no `stream`
  if (status >= 400) {
    const keyFrom = status === 401 ? keyOriginOf(exchange, upstream) : undefined;
    const level = status >= 500 ? 'error' : 'warn';
    caller.log[level]({ status, keyFrom }, 'The service answered with an error status');
  }
  const kind = responseKind(status, response.headers, encrypted, streaming);
  if (kind instanceof PrivatemodeError) {
    request.destroy();
    if (kind instanceof ForeignError) return respondForeign(exchange, upstream, kind, NOTHING);
    throw kind;
  }
  if (kind === 'plain') return respondPlain(exchange, requested, upstream);
  if (kind === 'encrypted-body') return respondBody(exchange, requested, upstream);
  return respondStream(exchange, requested, upstream);
}

const NOTHING = Buffer.alloc(0);

/**
 * Gives the application a response that nothing authenticates: an error or a list of models. It is marked, so
 * that no stranger's text passes for ours.
 */
async function respondPlain(
  exchange: ForwardedExchange,
  { aboutModel }: Requested,
  upstream: AttemptResponse,
): Promise<void> {
  const { deps, res, match, accounts } = exchange;
  const { response, errorBody } = upstream;
  const status = response.statusCode as number;
  const contentType = plainContentType(response.headers['content-type']);
  const headers = headersOf(exchange, upstream, { contentType, authenticated: false });
  const { aliases } = deps;
  const isList = status === 200 && (match.endpoint.id === 'models' || aboutModel !== undefined);
  const list = isList && aliases && (await readList(exchange, response));
  const tooOld = errorBody && clientTooOld(errorBody, deps.settings.protocolVersion);
  if (tooOld) throw tooOld;
  const body = errorBody ?? (list && withAliases(list, aliases, { target: match.target, aboutModel }));
  if (body) {
    respondWhole(exchange, { status, headers, body });
    accounts.done(status);
    return;
  }
  const length = response.headers['content-length'];
  const begin = (): unknown =>
    res.writeHead(status, { ...headers, ...(length === undefined ? {} : { 'content-length': length }) });
  const plain = openResponse(exchange, response, UNENCRYPTED, {
    onFailure: (failure) => res.headersSent && !res.destroyed && noteBroken(exchange, failure),
  });
  if (status >= 400) await errorToClient(plain, exchange, upstream, begin);
  else {
    begin();
    await toClient(plain, exchange);
  }
  if (plain.failure === undefined) {
    res.end();
    accounts.done(status);
  } else breakConnection(exchange);
}

/**
 * Passes a plain error on to the application as it comes. `begin` writes its head, once more than 4 KiB or
 * all of the error has been read. Throws instead: client_too_old if the whole error asks for a newer client,
 * and api_key_rejected for a 401 to a key of the operator. An error that breaks off before its head is out is
 * shown as far as it came.
 */
async function errorToClient(
  plain: DecryptStream,
  exchange: ForwardedExchange,
  upstream: AttemptResponse,
  begin: () => void,
): Promise<void> {
  const { res } = exchange;
  const pieces: Uint8Array[] = [];
  let size = 0;
  const decide = (isWhole: boolean): void => {
    if (res.destroyed) throw new ClientGone();
    const refused = refusalIn(exchange, upstream, isWhole ? Buffer.concat(pieces) : NOTHING);
    if (refused !== undefined) {
      upstream.request.destroy();
      throw refused;
    }
    begin();
  };
  for await (const chunk of plain as AsyncIterable<Uint8Array>) {
    if (res.headersSent) {
      await writeAll([chunk], exchange);
      continue;
    }
    pieces.push(chunk);
    size += chunk.length;
    if (size <= MOST_SEARCHED) continue;
    decide(false);
    await writeAll(pieces, exchange);
  }
  if (res.headersSent) return;
  decide(plain.failure === undefined);
  if (plain.failure === undefined) return writeAll(pieces, exchange);
  noteBroken(exchange, plain.failure);
  // Waits until the text is written, because breakConnection would discard it.
  await new Promise((written) => res.write(Buffer.concat(pieces), written));
}

/**
 * The error that replaces an error of the service which nothing authenticates: client_too_old if its text
 * asks for a newer client, api_key_rejected for a 401 to a key of the operator. Undefined: nothing replaces
 * it.
 */
function refusalIn(
  exchange: ForwardedExchange,
  { response, ownKey }: AttemptResponse,
  text: Uint8Array,
): PrivatemodeError | undefined {
  const isOld = clientTooOld(text, exchange.deps.settings.protocolVersion);
  return isOld ?? (response.statusCode === 401 && ownKey ? ownKeyRefused(exchange, ownKey) : undefined);
}

/** Bytes of the longest list of models that is rewritten. */
const LONGEST_LIST = 1024 * 1024;

/**
 * Reads a list of models whole; it is never cut. Throws response_too_large for a list above 1 MiB, and what
 * reading it throws.
 */
async function readList(exchange: Exchange, response: UpstreamResponse['response']): Promise<Buffer> {
  const plain = openResponse(exchange, response, UNENCRYPTED);
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of plain as AsyncIterable<Uint8Array>) {
    pieces.push(piece);
    size += piece.length;
    if (size <= LONGEST_LIST) continue;
    const message =
      'the list of models is larger than 1 MiB, and the names of --model-alias cannot be added to it';
    const remedy = 'Have the operator of the proxy leave out --model-alias: the list then passes as it is.';
    throw new PrivatemodeError('response_too_large', message, { remedy });
  }
  if (plain.failure !== undefined) throw plain.failure;
  return Buffer.concat(pieces);
}

/**
 * Adds the aliases to a list of models, or returns the entry of one alias. A list that continues another one
 * stays as it is, because the first one has the aliases.
 */
function withAliases(
  body: Buffer,
  aliases: AliasTable,
  { target, aboutModel }: { readonly target: string; readonly aboutModel: string | undefined },
): Buffer {
  if (aboutModel !== undefined) return entryOfAlias(aliases, body, aboutModel) ?? body;
  const isFurther = /[?&](?:after|after_id|before_id)=/.test(target);
  return (isFurther ? undefined : listWithAliases(aliases, body)) ?? body;
}

/**
 * Gives the application a whole JSON response. The application sees nothing of it before all of it is
 * authentic. An error that cannot be decrypted keeps its status. If it did not arrive completely, the reason
 * for that is the error.
 */
async function respondBody(
  exchange: ForwardedExchange,
  { asked, translator }: Requested,
  upstream: AttemptResponse,
): Promise<void> {
  const { res, match, accounts } = exchange;
  const { response, errorBody } = upstream;
  const cipher = upstream.cipher as RequestCipher;
  const status = response.statusCode as number;
  const isError = status >= 400;
  const room = roomForWhole(exchange, response);
  const source = errorBody === undefined ? response : Readable.from(piecesOf(errorBody));
  const count = { heard: (bytes: number) => accounts.heard(bytes), decrypted() {} };
  const stream = openResponse(exchange, source, UNENCRYPTED, { count });
  const wire: Uint8Array[] = [];
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    await room?.(chunk.length);
    wire.push(chunk);
  }
  if (stream.failure !== undefined) throw stream.failure;
  let pieces: Uint8Array[] = [];
  let failure: PrivatemodeError | undefined;
  try {
    const opened = await decryptBody(
      match.endpoint,
      cipher,
      isError ? undefined : asked,
      Buffer.concat(wire),
    );
    pieces = piecesOf(opened.body);
    accounts.decrypted(opened.body.length);
    accounts.delivered({ usage: opened.usage });
  } catch (thrown) {
    failure = asPrivatemodeError(thrown);
  }
  if (failure === undefined) {
    if (translator !== undefined && !isError) {
      pieces = [translatedBody(accounts, translator, pieces)];
      await room?.(pieces[0]!.length);
    }
    const overflow = isError && overflowBody(Buffer.concat(pieces), status, exchange.caller.format);
    if (overflow) pieces = [overflow];
    const headers = headersOf(exchange, upstream, { contentType: 'application/json', authenticated: true });
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    beginWhole(exchange, { status, headers, length });
    accounts.done(status);
    noteAuthentic(exchange, upstream);
    finishWhole(exchange, pieces);
    return;
  }
  if (!isError || res.destroyed) throw failure;
  if (!cipher.hasOpened()) {
    return respondForeign(exchange, upstream, new ForeignError(failure, status), Buffer.concat(wire));
  }
  accounts.failed(failure, status);
  respondUnread(exchange, upstream, unreadError(failure, status));
}

/**
 * Gives the application an error in place of one that is not marked as plain. `text`: what is known of its
 * text, which the application does not get. Throws the error that replaces it (refusalIn).
 */
function respondForeign(
  exchange: ForwardedExchange,
  upstream: AttemptResponse,
  foreign: ForeignError,
  text: Uint8Array,
): void {
  const refused = refusalIn(exchange, upstream, text);
  if (refused !== undefined) throw refused;
  exchange.accounts.failed(foreign, upstream.response.statusCode);
  respondUnread(exchange, upstream, foreign);
}

/** Gives the application the status, Retry-After and rate limits of an error that cannot be decrypted. */
function respondUnread(
  exchange: ForwardedExchange,
  { response }: AttemptResponse,
  shown: PrivatemodeError,
): void {
  const status = response.statusCode as number;
  const headers = remoteHeaders(response.rawHeaders, { authenticated: false });
  respondError(exchange, shown, { status, headers });
  count(exchange.deps.metrics.counters.responses, status);
}

function translatedBody(accounts: Accounts, translator: Translator, pieces: readonly Uint8Array[]): Buffer {
  const chat = Buffer.concat(pieces);
  const body = translator.body(chat);
  accounts.lengthened(body.length - chat.length);
  return body;
}

/** Gives the application an event stream. Each event goes on as soon as its chunk has been decrypted. */
async function respondStream(
  exchange: ForwardedExchange,
  { asked, translator, repeated }: Requested,
  upstream: AttemptResponse,
): Promise<void> {
  const { deps, res, match, life, accounts } = exchange;
  const { counters } = deps.metrics;
  const { response, cipher } = upstream;
  beginStream(exchange, upstream);

  const decrypter = new EventDecrypter(match.endpoint, cipher as RequestCipher, asked);
  life.reached('before_first_token');
  const room = translator && repeated && roomForHeld(translator, repeated);
  const events = openResponse(exchange, response, translator?.decrypter(decrypter) ?? decrypter, {
    count: {
      heard(bytes) {
        accounts.heard(bytes);
        room?.();
      },
      decrypted: (bytes) => accounts.decrypted(bytes),
    },
    onFirstBytes: () => {
      life.reached('mid_stream');
      accounts.stage('first_event');
    },
    onFailure: (failure) => {
      if (!isUndecryptable(failure)) counters.truncatedStreams += 1;
      noteBroken(exchange, failure);
    },
  });
  const { streamKeepalive } = deps.settings;
  if (streamKeepalive > 0) keepStreamAlive(events, res, { interval: streamKeepalive, clock: deps.clock });
  try {
    await toClient(events, exchange);
  } finally {
    counters.streamEvents += decrypter.events;
    const { usage, modelError } = decrypter;
    accounts.delivered({ events: translator?.events() ?? decrypter.events, usage, modelError });
  }
  const { failure } = events;
  if (failure === undefined) {
    accounts.done(res.statusCode);
    noteAuthentic(exchange, upstream);
  }
  // A chat ends normally if the service reports an error in it. A stream of the Responses API is then broken,
  // so that nobody takes its end for that of a whole Response.
  if (failure === undefined && (translator === undefined || !decrypter.modelError)) {
    res.end();
    return;
  }
  life.markBroken();
  const told = failure && forCaller(exchange, failure);
  const last = told && (translator?.fail(told) ?? errorEvent(told, exchange.caller));
  accounts.delivered({ events: translator?.events() ?? decrypter.events + 1 });
  res.write(last ?? NOTHING, () => breakConnection(exchange));
}

/**
 * Called when a whole response was read: it proves that the service knows the secret and accepts the key. A
 * response that holds nothing encrypted proves nothing.
 */
function noteAuthentic(exchange: Exchange, { cipher, epoch, isTrial, ownKey }: AttemptResponse): void {
  if (!cipher?.hasOpened()) return;
  if (isTrial) exchange.deps.session.authenticated(epoch.secretId);
  if (ownKey) noteOwnKey(exchange, 'answered', ownKey);
}

/** Writes the head of a stream now. Events that are there already leave in one piece with it. */
function beginStream(exchange: ForwardedExchange, upstream: AttemptResponse): void {
  const { res } = exchange;
  res.writeHead(upstream.response.statusCode as number, {
    ...headersOf(exchange, upstream, { contentType: 'text/event-stream', authenticated: true }),
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
  });
  const { socket } = res;
  socket?.cork();
  res.flushHeaders();
  setImmediate(() => socket?.uncork());
}

/** The headers of the response to the application. `authenticated`: whether its body is. */
const headersOf = (
  exchange: ForwardedExchange,
  { response, epoch }: AttemptResponse,
  { contentType, authenticated }: { readonly contentType: string; readonly authenticated: boolean },
): Record<string, string | string[]> =>
  responseHeaders({
    format: exchange.caller.format,
    requestId: exchange.caller.requestId,
    rawHeaders: response.rawHeaders,
    contentType,
    own: ownHeaders(exchange),
    encrypted: exchange.match.endpoint.encrypted,
    epoch: authenticated ? epoch : undefined,
  });

/**
 * Gives the application all that the stream delivers; the response stays open. Throws ClientGone if the
 * application has left. It does not use stream.pipeline, which makes an AbortController and an AbortError for
 * each stream: a short request would cost a sixth more (bench row request_cpu).
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
      stream.off('close', left); // 'close' follows 'end'
      resolve();
    });
    if (res.destroyed) left();
    else stream.pipe(res, { end: false });
  });
  stream.removeAllListeners(); // some refer to the exchange (docs/hazards.md 25)
}

/** Writes the pieces as fast as the application takes them. Throws ClientGone if the application has left. */
async function writeAll(pieces: readonly Uint8Array[], { res }: Exchange): Promise<void> {
  for (const piece of pieces) {
    if (!res.destroyed && !res.write(piece)) await drained(res);
    if (res.destroyed) throw new ClientGone();
  }
}

/** Resolves when the response can take more, and also when its connection is gone. */
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
