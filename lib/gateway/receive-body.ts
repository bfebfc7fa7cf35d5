import type { ModelAliases } from '../api/model-aliases.ts';
import { requireModel } from '../clients/authenticate.ts';
import { releaseMemory } from '../envelope/message-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { leftOutHeader } from '../exchange/headers.ts';
import type { RequestGate } from '../limits/request-gate.ts';
import { joinPieces } from '../network/join-pieces.ts';
import {
  createRequestBody,
  hasBillingLine,
  type ParsedBody,
  type Rename,
  type RequestBody,
} from '../pipeline/request-body.ts';
import { addHeaders, type Exchange, type ForwardedExchange } from './exchange.ts';
import { isArriving } from './own-response.ts';

/** The client went away while it was sending; nobody is left to answer. */
export class ClientGone extends Error {}

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
 * Gets the exchange its permit, which the end of the exchange releases; nothing of its body is read before that. Rejects with the codes
 * of the gate, with ClientGone where the client left while it waited, and with the reason where the exchange is aborted.
 */
export async function enterGate(exchange: Exchange, gate: RequestGate): Promise<void> {
  const { req, client, control } = exchange;
  joinPieces(req, SHORT_PIECE, 0); // the first ones are in the buffer while it waits
  const permit = await gate.enter({ client, signal: control.signal });
  if (exchange.over) {
    permit.release(0); // it comes too late
    throw new ClientGone();
  }
  exchange.permit = permit;
}

/**
 * Feeds the request body of the exchange to `incoming` while it arrives. Rejects as soon as something is wrong with it
 * (body_too_large, upload_too_slow, too_many_uploads, its own codes) and then swallows what still comes, so that the error can be
 * answered on the same connection. Rejects with ClientGone where the client left, and with the reason where the exchange is
 * aborted. Whatever becomes of the request, nothing stays reserved for it. `own`: a limit beside --max-body-bytes.
 */
export async function receive<T extends object>(
  { deps, req, res, stats, control, receipt }: Exchange,
  incoming: RequestBody<T>,
  own?: BodyLimit,
): Promise<ReceivedBody<T>> {
  const { maxBodyBytes, minUploadRate, uploadRateGrace } = deps.limits;
  const most =
    own !== undefined && own.bytes < maxBodyBytes ? own : { bytes: maxBodyBytes, name: '--max-body-bytes' };
  const { signal } = control;
  const length = Number(req.headers['content-length'] ?? 0);
  if (length > most.bytes) throw tooLarge(most);
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } =
    req.headers;
  // Node undoes chunking and nothing else: what is compressed below it would be sealed as if it were the body.
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  joinPieces(req, SHORT_PIECE, 0); // now: the first ones are in the buffer before the reservation is
  const reservation = deps.uploadBudget.open();
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
  const fail = (error: Error): void => {
    if (failed) return;
    failed = true;
    settle();
    reservation.release();
    reject(error);
  };
  const interrupted = (): void => fail(signal.reason);
  const isTooSlow = watchRate(() => stats.bytes.fromClient, minUploadRate, uploadRateGrace);
  const rateCheck = setInterval(() => {
    if (!isTooSlow()) return;
    const message = `the body arrives slower than ${minUploadRate} bytes/s`;
    fail(new PrivatemodeError('upload_too_slow', message));
  }, RATE_INTERVAL_MS);
  rateCheck.unref();
  if (signal.aborted) interrupted();
  else signal.addEventListener('abort', interrupted);

  const take = (chunk: Uint8Array): void => {
    stats.bytes.fromClient += chunk.length;
    receipt?.request.update(chunk);
    if (failed) return;
    try {
      if (stats.bytes.fromClient > most.bytes) throw tooLarge(most);
      if (!announced) reservation.grow(chunk.length);
      if (chunk.length >= SHORT_PIECE) chunks.push(chunk);
      incoming.feed(chunk);
    } catch (thrown) {
      fail(asPrivatemodeError(thrown));
    }
  };
  const gone = (): void => fail(new ClientGone());
  const release = (): void => {
    for (const chunk of chunks.splice(0)) releaseMemory(chunk);
    reservation.release();
  };
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
      reject,
    );
  });
  return promise;
}

/**
 * Receives the request body of the exchange, if its endpoint has one, and notes what it asks for. Rejects with client_forbidden if its
 * client may not use that model. Where no body belongs (GET requests may carry one), it is read and dropped, and nothing of it is
 * forwarded. The response does not wait for it and ends the connection, because nothing limits how long such a body takes.
 */
export async function takeIn(exchange: ForwardedExchange): Promise<ReceivedBody | undefined> {
  const { req, res, match, stats, client } = exchange;
  const { deps, sharedSalt, mixSalt } = exchange;
  const rename = deps.aliases && renaming(exchange, deps.aliases);
  const incoming = createRequestBody(
    match.endpoint,
    req.headers['content-type'],
    sharedSalt,
    mixSalt,
    rename,
  );
  if (incoming === undefined) {
    if (isArriving(req)) res.setHeader('connection', 'close');
    joinPieces(req, SHORT_PIECE, 0);
    req.resume();
    return undefined;
  }
  const { translator } = exchange;
  const body = await receive(
    exchange,
    translator === undefined ? incoming : translator.request(incoming, turnsOf(exchange)),
  );
  const leftOut = translator?.leftOut();
  if (leftOut !== undefined) {
    exchange.toolsLeftOut = leftOut;
    addHeaders(exchange, { last: leftOutHeader(leftOut) });
  }
  exchange.stage?.('received');
  const { model, streaming, choices, format, usage } = body;
  stats.model = model;
  if (sharedSalt !== undefined && hasBillingLine(body)) deps.spoilsCache?.(exchange.log);
  if (client !== undefined) requireModel(client, model, exchange.alias);
  exchange.asked = { streaming, choices, format, usage };
  return body;
}

const renaming =
  (exchange: Exchange, aliases: ModelAliases): Rename =>
  (wanted) => {
    const alias = aliases.find(wanted);
    exchange.alias = alias?.name;
    return alias?.model;
  };

/** ms that a translation goes on before others have their turn. */
const TURN_MS = 5;

/** To be called between the pieces of some work: a promise where others are to have their turn first, which rejects once the exchange is over. */
function turnsOf({ control: { signal } }: Exchange): () => Promise<void> | undefined {
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
