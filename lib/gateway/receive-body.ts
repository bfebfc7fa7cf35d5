/** Receives the body of a request within its limits, and finds out what the request asks for. */
import { requireModel } from '../access/authenticate.ts';
import { type AliasTable, aliasedInPath, aliasIn } from '../api/model-aliases.ts';
import { type Clock, every } from '../clock.ts';
import { releaseMemory } from '../envelope/message-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { CollectedBytes } from '../pipeline/collected-bytes.ts';
import type { SaltRule } from '../pipeline/inject-salt.ts';
import {
  type BodyReader,
  bodyReader,
  NOTHING_ASKED,
  type ParsedBody,
  type Pause,
  type Rename,
} from '../pipeline/request-body.ts';
import { ClientGone } from './life.ts';
import { roomForRepeated } from './open-response.ts';
import { isArriving } from './own-response.ts';
import type { Exchange, ForwardedExchange, Requested } from './request-state.ts';

/** A body that has arrived. */
export type ReceivedBody<T = ParsedBody> = T & {
  /** Frees its memory and its reservation. Called when the body has been sealed for the last time. */
  release(): void;
};

/**
 * Collects the request body of the exchange, and reads it with `read`. Rejects as soon as something is wrong:
 * body_too_large, upload_too_slow, too_many_uploads, unsupported_encoding, and the codes of `read`. The rest
 * is then dropped, so that the error response can go out on the same connection. Rejects with ClientGone if
 * the client has left, and with the signal's reason if the exchange is aborted. The memory reserved for the
 * body is given back when the body is released, and at the latest when the response is closed.
 */
export async function receive<T extends object>(
  exchange: Exchange,
  read: BodyReader<T>,
): Promise<ReceivedBody<T>> {
  const { deps, req, res, life, accounts } = exchange;
  const { maxBodyBytes, minUploadRate } = deps.settings;
  const { signal } = life;
  const { bytes } = accounts.stats;
  const length = Number(req.headers['content-length'] ?? 0);
  if (length > maxBodyBytes) throw tooLarge(maxBodyBytes);
  const { 'content-encoding': encoding = 'identity', 'transfer-encoding': transfer = 'chunked' } =
    req.headers;
  // Node undoes chunking and no other encoding. A compressed body would be sealed as if it were the body
  // itself.
  if (encoding.toLowerCase() !== 'identity' || transfer.toLowerCase() !== 'chunked') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  const reservation = deps.memory.uploads.open();
  res.once('close', reservation.release);
  if (length > 0) await reservation.reserve(length, signal); // nothing is read while it waits
  if (req.destroyed && !req.readableEnded) throw new ClientGone();
  // Answers `Expect: 100-continue`. The listener refuses any other expectation, and HTTP/1.0 has none.
  if (req.headers.expect !== undefined && req.httpVersionMinor === 1) res.writeContinue();

  const { promise, resolve, reject } = Promise.withResolvers<ReceivedBody<T>>();
  const announced = req.headers['content-length'] !== undefined;
  let failed = false;
  const incoming = new CollectedBytes();

  const settle = (): void => {
    free();
    stopLooking();
    signal.removeEventListener('abort', interrupted);
  };
  const release = (): void => {
    incoming.release();
    reservation.release();
  };
  let spent: Uint8Array | undefined; // the last chunk: the parser of HTTP may not have done with it
  const free = (): void => {
    if (spent !== undefined) releaseMemory(spent);
    spent = undefined;
  };
  const fail = (error: Error): void => {
    if (failed) return;
    failed = true;
    settle();
    release();
    reject(error);
  };
  const interrupted = (): void => fail(signal.reason);
  const isTooSlow = watchRate(() => bytes.fromClient, minUploadRate, deps.clock);
  const stopLooking = every(deps.clock, deps.clock.times.uploadLook, () => {
    if (!isTooSlow()) return;
    const message = `the body arrives slower than ${minUploadRate} bytes/s`;
    fail(new PrivatemodeError('upload_too_slow', message));
  });
  if (signal.aborted) interrupted();
  else signal.addEventListener('abort', interrupted);

  const take = (chunk: Uint8Array): void => {
    accounts.received(chunk);
    if (failed) return;
    try {
      if (bytes.fromClient > maxBodyBytes) throw tooLarge(maxBodyBytes);
      if (!announced) reservation.grow(chunk.length);
      incoming.push(chunk);
      free();
      if (deps.dumper === undefined) spent = chunk; // a dump is still being written
    } catch (thrown) {
      fail(asPrivatemodeError(thrown));
    }
  };
  const gone = (): void => fail(new ClientGone());
  req.on('data', take);
  req.once('error', gone);
  req.once('close', gone);
  req.once('end', () => {
    // Otherwise the prompt would stay in memory for as long as its response takes.
    req.off('data', take);
    req.off('error', gone);
    req.off('close', gone);
    settle();
    if (failed) return;
    accounts.uploaded();
    new Promise<T>((done) =>
      done(read(incoming.bytes(), { hold: reservation.grow, pause: turnsOf(exchange) })),
    ).then((prepared) => resolve({ ...prepared, release }), fail);
  });
  return promise;
}

/** What a request asks for, and its body; undefined if its endpoint has none. */
export interface TakenIn {
  readonly requested: Requested;
  readonly body: ReceivedBody | undefined;
}

/**
 * Receives the request body of the exchange, if its endpoint has one, and finds out what the request asks
 * for: the model behind another name (--model-alias), a translation (the Responses API). Rejects as `receive`
 * does. Rejects with client_forbidden, once the body is complete, if the client may not use the model.
 * Rejects with too_many_responses or response_too_large if no memory is left for the parts of the request
 * that the response repeats.
 *
 * If no body belongs to the endpoint (GET requests may carry one), the body is read and dropped, and nothing
 * of it is forwarded. The response does not wait for it and ends the connection, because nothing limits how
 * long such a body takes.
 */
export async function takeIn(exchange: ForwardedExchange): Promise<TakenIn> {
  const { deps, req, res, match, caller, accounts } = exchange;
  const { client } = caller;
  const rename = deps.aliases && renaming(exchange, deps.aliases);
  const contentType = req.headers['content-type'];
  const incoming = bodyReader(match.endpoint, contentType, rename);
  if (incoming === undefined) {
    if (isArriving(req)) res.setHeader('connection', 'close');
    req.resume();
    const aboutModel = aliasAskedAbout(exchange);
    return { requested: { asked: NOTHING_ASKED, translator: undefined, aboutModel }, body: undefined };
  }
  const translator =
    match.endpoint.translatedTo === undefined ? undefined : deps.createTranslator?.(caller.requestId);
  const body = await receive(exchange, translator?.request(incoming) ?? incoming);
  const repeated = translator && (await roomForRepeated(exchange, translator).catch(refusedAfter(body)));
  accounts.note({ toolsLeftOut: translator?.leftOut() });
  accounts.stage('received');
  const { model, streaming, choices, format, usage } = body;
  accounts.asksFor(model);
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

/** Which salts requests get; with --clients, those of the client. */
export const saltOf = ({ deps, caller: { client } }: Exchange): SaltRule =>
  client === undefined ? deps.salt : { shared: client.sharedSalt, mix: client.mixSalt };

/** The model that the path names, if that is an alias. */
function aliasAskedAbout({ deps, match, accounts }: ForwardedExchange): string | undefined {
  const { aliases } = deps;
  const asked = aliases && match.endpoint.id === 'model' ? aliasedInPath(aliases, match.target) : undefined;
  if (aliases && asked !== undefined) accounts.note({ alias: aliasIn(aliases, asked)?.name });
  return asked;
}

const renaming =
  ({ accounts }: Exchange, aliases: AliasTable): Rename =>
  (wanted) => {
    const alias = aliasIn(aliases, wanted);
    accounts.note({ alias: alias?.name });
    return alias?.model;
  };

/**
 * Makes a function to call between the pieces of long work. It returns undefined if the work may go on.
 * Otherwise it returns a promise that resolves when others have had their turn, and rejects if the exchange
 * is over.
 */
function turnsOf({ deps: { clock }, life: { signal } }: Exchange): Pause {
  let since = clock.monotonic();
  return () => {
    if (clock.monotonic() - since < clock.times.turn) return undefined;
    return new Promise(setImmediate).then(() => {
      signal.throwIfAborted();
      since = clock.monotonic();
    });
  };
}

/**
 * Makes a function, to be called at intervals, that returns whether fewer than `rate` bytes per second have
 * come during the last `uploadGrace` ms. It returns false during the first. It does not take the average
 * since the start: a client with a fast beginning could then trickle for an hour.
 */
function watchRate(received: () => number, rate: number, clock: Clock): () => boolean {
  const span = clock.times.uploadGrace;
  const samples = [{ at: clock.monotonic(), bytes: received() }];
  return () => {
    const now = clock.monotonic();
    const bytes = received();
    samples.push({ at: now, bytes });
    while (samples.length > 1 && samples[1]!.at <= now - span) samples.shift();
    const { at, bytes: before } = samples[0]!;
    return now - at >= span && bytes - before < (rate * (now - at)) / 1000;
  };
}

const tooLarge = (most: number): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${most} bytes (--max-body-bytes)`);
