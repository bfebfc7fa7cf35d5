/** The middle of the chain: one attempt, and when a second one is made. */
import { setTimeout as delay } from 'node:timers/promises';
import { type RetryRow, retryForAnswer, retryForFailure } from '../api/retry.ts';
import { protectionHeaders, type RequestCipher } from '../envelope/protection.ts';
import { count } from '../observe/counters.ts';
import { DecryptStream, UNENCRYPTED } from '../pipeline/decrypt-stream.ts';
import type { EncryptedBody } from '../pipeline/encrypt-body.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import { requestHeaders } from '../pipeline/rewrite-auth.ts';
import type { UpstreamResponse } from '../pipeline/upstream.ts';
import { UpstreamFailure } from '../pipeline/upstream-failure.ts';
import type { Epoch } from '../session/session.ts';
import { type Exchange, logStage, newRequestStats } from './exchange.ts';
import type { AttemptResponse } from './respond.ts';

/** Makes an attempt under that epoch: the first (0) or the retry (1), the latter perhaps on a connection of its own. */
export type MakeAttempt = (epoch: Epoch, number: 0 | 1, fresh: boolean) => Promise<AttemptResponse>;

/**
 * The response of the first attempt, or of a second one where a row of the retry table asks for it. `verified` waits for a usable
 * epoch. Rejects with what the last attempt failed with, and with the reason of the exchange's signal.
 */
export async function withOneRetry(
  { deps, log, signal }: Exchange,
  epoch: Epoch,
  verified: () => Promise<Epoch>,
  attempt: MakeAttempt,
): Promise<AttemptResponse> {
  const first = await attempt(epoch, 0, false).catch(asFailure);
  const row = first instanceof UpstreamFailure ? retryForFailure(first.retry) : retryOfResponse(first);
  if (row === undefined) return settled(first);

  signal.throwIfAborted();
  let next = epoch;
  try {
    next = row.renew
      ? await unlessAborted(signal, deps.session.renewAfterRejection(epoch.secretId))
      : await verified(); // the first attempt may have outlived its epoch
    if (row.delay > 0) await delay(row.delay, undefined, { signal });
  } catch {
    signal.throwIfAborted();
    return settled(first); // without a new secret the first response is the one to tell
  }
  count(deps.counters.upstreamRetries, row.id);
  log.warn({ retry: row.id, why: row.why }, 'Request failed, trying once more');
  return settled(await attempt(next, 1, row.fresh).catch(asFailure));
}

const retryOfResponse = ({ response, plainBody }: AttemptResponse): RetryRow | undefined =>
  plainBody && retryForAnswer(response.statusCode as number, plainBody.toString('latin1'));

function asFailure(thrown: unknown): UpstreamFailure {
  if (thrown instanceof UpstreamFailure) return thrown;
  throw thrown;
}

function settled(outcome: AttemptResponse | UpstreamFailure): AttemptResponse {
  if (outcome instanceof UpstreamFailure) throw outcome.error;
  return outcome;
}

/** Settles as the promise does. Rejects with the reason of `signal` if that aborts first. */
async function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener('abort', abort);
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/** What goes out in one attempt. */
export interface OutgoingAttempt {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  readonly body: SaltedBody | undefined;
  readonly sealed: EncryptedBody | undefined;
  readonly authorization: string | undefined;
  readonly number: 0 | 1;
  readonly fresh: boolean;
}

/** Sends one attempt; rejects with UpstreamFailure. A plain 500 that may ask for a retry is read at once. */
export async function sendAttempt(exchange: Exchange, outgoing: OutgoingAttempt): Promise<AttemptResponse> {
  const { deps, req, res, match, stats, signal } = exchange;
  const { epoch, cipher, sealed, number, fresh } = outgoing;
  const stream = sealed?.stream;
  if (sealed !== undefined) stats.bytes.toRemote += sealed.contentLength;
  if (exchange.debug && stream !== undefined) {
    logStage(exchange, 'sealed', { attempt: number + 1 });
    stream.once('end', () => logStage(exchange, 'sent', { attempt: number + 1 }));
  }
  stats.sentAt ??= performance.now();
  const upstream = await deps.upstream.send(req, res, {
    // Not every server that knows GET knows HEAD; the body of the response goes no further than here.
    method: req.method === 'HEAD' ? 'GET' : (req.method as string),
    path: match.target,
    headers: headersOf(exchange, outgoing),
    body: stream,
    fresh,
    signal,
  });
  logStage(exchange, 'head', { attempt: number + 1, status: upstream.response.statusCode as number });
  const mayRetry = number === 0 && match.endpoint.encrypted && isPlainServerError(upstream);
  const plainBody = mayRetry ? await readSmall(exchange, upstream) : undefined;
  return { ...upstream, epoch, cipher, plainBody };
}

function headersOf(
  { deps, req, match, requestId }: Exchange,
  { epoch, body, sealed, authorization, number }: OutgoingAttempt,
): Record<string, string> {
  const { encrypted } = match.endpoint;
  const headers = requestHeaders({
    rawHeaders: req.rawHeaders,
    host: deps.upstream.authority,
    authorization,
    requestId: encrypted ? `${requestId}_${number}` : requestId,
  });
  if (encrypted) {
    const { secretId, key } = epoch;
    const { model, shardKey } = body ?? {};
    const { gpuPolicy } = deps;
    Object.assign(
      headers,
      protectionHeaders({ secretId, key, model, shardKey, gpuPolicy, nowMs: Date.now() }),
    );
  }
  if (sealed === undefined) delete headers['content-type'];
  else {
    headers['content-length'] = String(sealed.contentLength);
    if (sealed.contentType !== undefined) headers['content-type'] = sealed.contentType;
  }
  return headers;
}

const isPlainServerError = ({ response }: UpstreamResponse): boolean =>
  response.statusCode === 500 && response.headers['privatemode-encrypted'] === 'false';

const SMALL_BODY = 1024 * 1024;

/** The whole body of a plain error; what goes beyond 1 MiB of it is cut off, with the connection. Throws its failure. */
async function readSmall({ deps }: Exchange, { response }: UpstreamResponse): Promise<Buffer> {
  const stats = newRequestStats(); // what is told of it is counted where it is told
  const stream = new DecryptStream(response, UNENCRYPTED, {
    stats,
    idleTimeout: deps.streamIdleTimeout,
    signal: deps.terminate,
  });
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) {
    chunks.push(chunk as Uint8Array);
    if (stats.bytes.toClient > SMALL_BODY) break; // which destroys both streams
  }
  if (stream.failure !== undefined) throw stream.failure;
  return Buffer.concat(chunks).subarray(0, SMALL_BODY);
}
