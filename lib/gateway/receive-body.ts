import type { ModelAliases } from '../api/model-aliases.ts';
import { requireModel } from '../clients/authenticate.ts';
import { releaseMemory } from '../envelope/message-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { NOTHING_ASKED } from '../pipeline/decrypter.ts';
import {
  createRequestBody,
  hasBillingLine,
  type ParsedBody,
  type Rename,
  type RequestBody,
} from '../pipeline/request-body.ts';
import type { Exchange, ForwardedExchange, Requested } from './exchange.ts';
import { ClientGone } from './life.ts';
import { roomForRepeated } from './open-response.ts';
import { isArriving } from './own-response.ts';

/** A body that has arrived. */
export type ReceivedBody<T = ParsedBody> = T & {
  /** To be called when it has been sealed for the last time: frees its memory. */
  release(): void;
};

/** The largest body of a kind of request, and what limits it. */
export interface BodyLimit {
  readonly bytes: number;
  readonly name: string;
}

/** Bytes; shorter pieces are joined with what comes at the same time. */
export const SHORT_PIECE = 4 * 1024;

/**
 * Feeds the request body of the exchange to `incoming` while it arrives. Rejects as soon as something is wrong with it
 * (body_too_large, upload_too_slow, too_many_uploads, its own codes) and then swallows what still comes, so that the error can be
 * answered on the same connection. Rejects with ClientGone where the client left, and with the reason where the exchange is
 * aborted. What is reserved for the body is free when it is released, and at the latest when the response is closed. `own`: a limit beside --max-body-bytes.
 */
export async function receive<T extends object>(
  { deps, req, res, life, accounts }: Exchange,
  incoming: RequestBody<T>,
  own?: BodyLimit,
): Promise<ReceivedBody<T>> {
  const { maxBodyBytes, minUploadRate } = deps.settings;
  const most =
    own !== undefined && own.bytes < maxBodyBytes ? own : { bytes: maxBodyBytes, name: '--max-body-bytes' };
  const { signal } = life;
  const { bytes } = accounts.stats;
  const length = Number(req.headers['content-length'] ?? 0);
  if (length > most.bytes) throw tooLarge(most);
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } =
    req.headers;
  // Node undoes chunking and nothing else: what is compressed below it would be sealed as if it were the body.
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  const reservation = deps.memory.uploads.open();
  res.once('close', reservation.release);
  if (length > 0) await reservation.reserve(length, signal); // nothing is read while it waits
  if (req.destroyed && !req.readableEnded) throw new ClientGone();
  // Of any other expectation the listener says that nobody knows it; in HTTP/1.0 there is none.
  if (req.headers.expect !== undefined && req.httpVersionMinor === 1) res.writeContinue();

  const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody<T>>();
  const announced = req.headers['content-length'] !== undefined;
  const chunks: Uint8Array[] = []; // what is worth releasing; short pieces are copied
  let failed = false;

  const settle = (): void => {
    clearInterval(rateCheck);
    signal.removeEventListener('abort', interrupted);
  };
  const release = (): void => {
    for (const chunk of chunks.splice(0)) releaseMemory(chunk);
    reservation.release();
  };
  const fail = (error: Error): void => {
    if (failed) return;
    failed = true;
    settle();
    release();
    reject(error);
  };
  const interrupted = (): void => fail(signal.reason);
  const isTooSlow = watchRate(
    () => bytes.fromClient,
    minUploadRate,
    deps.patience?.uploadRateGrace ?? UPLOAD_RATE_GRACE,
  );
  const rateCheck = setInterval(() => {
    if (!isTooSlow()) return;
    const message = `the body arrives slower than ${minUploadRate} bytes/s`;
    fail(new PrivatemodeError('upload_too_slow', message));
  }, RATE_INTERVAL_MS);
  rateCheck.unref();
  if (signal.aborted) interrupted();
  else signal.addEventListener('abort', interrupted);

  const take = (chunk: Uint8Array): void => {
    accounts.received(chunk);
    if (failed) return;
    try {
      if (bytes.fromClient > most.bytes) throw tooLarge(most);
      if (!announced) reservation.grow(chunk.length);
      if (chunk.length >= SHORT_PIECE) chunks.push(chunk);
      incoming.feed(chunk);
    } catch (thrown) {
      fail(asPrivatemodeError(thrown));
    }
  };
  const gone = (): void => fail(new ClientGone());
  req.on('data', take);
  req.once('error', gone);
  req.once('close', gone);
  req.once('end', () => {
    // Or the prompt would stay in memory for as long as its answer takes.
    req.off('data', take);
    req.off('error', gone);
    req.off('close', gone);
    settle();
    if (failed) return;
    new Promise<T>((done) => done(incoming.finish(reservation.grow))).then(
      (prepared) => resolve({ ...prepared, release }),
      fail,
    );
  });
  return promise;
}

/** What a request asks for, and its body; undefined where its endpoint has none. */
export interface TakenIn {
  readonly requested: Requested;
  readonly body: ReceivedBody | undefined;
}

/**
 * Receives the request body of the exchange, if its endpoint has one, and finds out what the request asks for: a model by another name
 * (--model-alias), a translation (the Responses API). Rejects with client_forbidden, once the body
 * is complete, if its client may not use that model, and with too_many_responses or response_too_large where no memory is left for what the
 * response repeats. Where no body
 * belongs (GET requests may carry one), it is read and dropped, and nothing of it is forwarded. The response does not wait for it and ends
 * the connection, because nothing limits how long such a body takes.
 */
export async function takeIn(exchange: ForwardedExchange): Promise<TakenIn> {
  const { deps, req, res, match, caller, accounts } = exchange;
  const { client } = caller;
  const { shared, mix } = saltOf(exchange);
  const rename = deps.aliases && renaming(exchange, deps.aliases);
  const contentType = req.headers['content-type'];
  const incoming = createRequestBody(match.endpoint, contentType, shared, mix, rename);
  if (incoming === undefined) {
    if (isArriving(req)) res.setHeader('connection', 'close');
    req.resume();
    const aboutModel = aliasAskedAbout(exchange);
    return { requested: { asked: NOTHING_ASKED, translator: undefined, aboutModel }, body: undefined };
  }
  const translator =
    match.endpoint.translatedTo === undefined ? undefined : deps.createTranslator?.(caller.requestId);
  const body = await receive(exchange, translator?.request(incoming, turnsOf(exchange)) ?? incoming);
  const repeated = translator && (await roomForRepeated(exchange, translator).catch(refusedAfter(body)));
  accounts.note({ toolsLeftOut: translator?.leftOut() });
  accounts.stage('received');
  const { model, streaming, choices, format, usage } = body;
  accounts.asksFor(model);
  if (shared !== undefined && hasBillingLine(body)) deps.salt.onSpoilt?.(caller.log);
  if (client !== undefined) requireModel(client, model, accounts.noted.alias);
  const asked = { streaming, choices, format, usage };
  return { requested: { asked, translator, repeated, aboutModel: undefined }, body };
}

/** Frees the body, which nobody will send, and passes the reason on. */
const refusedAfter =
  (body: ReceivedBody) =>
  (reason: unknown): never => {
    body.release();
    throw reason;
  };

/** The salt of requests that bring none, and what replaces the one that a request brings: with --clients those of its client. */
export const saltOf = ({ deps, caller: { client } }: Exchange) =>
  client === undefined
    ? { shared: deps.salt.shared, mix: undefined }
    : { shared: client.sharedSalt, mix: client.mixSalt };

/** The model that a path names, where that is an alias. */
function aliasAskedAbout({ deps, match, accounts }: ForwardedExchange): string | undefined {
  const asked = match.endpoint.id === 'model' ? deps.aliases?.inPath(match.target) : undefined;
  if (asked !== undefined) accounts.note({ alias: deps.aliases?.find(asked)?.name });
  return asked;
}

const renaming =
  ({ accounts }: Exchange, aliases: ModelAliases): Rename =>
  (wanted) => {
    const alias = aliases.find(wanted);
    accounts.note({ alias: alias?.name });
    return alias?.model;
  };

/** ms that a translation goes on before others have their turn. */
const TURN_MS = 5;

/** To be called between the pieces of some work: a promise where others are to have their turn first, which rejects once the exchange is over. */
function turnsOf({ life: { signal } }: Exchange): () => Promise<void> | undefined {
  let since = performance.now();
  return () => {
    if (performance.now() - since < TURN_MS) return undefined;
    return new Promise(setImmediate).then(() => {
      signal.throwIfAborted();
      since = performance.now();
    });
  };
}

const RATE_INTERVAL_MS = 1_000;
const UPLOAD_RATE_GRACE = 10_000;

/**
 * Whether fewer than `rate` bytes per second have come during the last `span` ms, to be asked at intervals; false during the first
 * `span`. Not the average since the start, by which a fast beginning would buy an hour of trickling.
 */
function watchRate(received: () => number, rate: number, span: number): () => boolean {
  const samples = [{ at: performance.now(), bytes: received() }];
  return () => {
    const now = performance.now();
    const bytes = received();
    samples.push({ at: now, bytes });
    while (samples.length > 1 && samples[1]!.at <= now - span) samples.shift();
    const { at, bytes: before } = samples[0]!;
    return now - at >= span && bytes - before < (rate * (now - at)) / 1000;
  };
}

const tooLarge = ({ bytes, name }: BodyLimit): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${bytes} bytes (${name})`);
