/** The middle of the chain: one attempt, and when a second one is made. */
import { setTimeout as delay } from 'node:timers/promises';
import { type RetryRow, retryForAnswer, retryForFailure } from '../api/retry.ts';
import { protectionHeaders, type RequestCipher } from '../envelope/protection.ts';
import { count } from '../observe/counters.ts';
import { UNENCRYPTED } from '../pipeline/decrypt-stream.ts';
import type { EncryptedStream } from '../pipeline/encrypt-stream.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import { requestHeaders } from '../pipeline/rewrite-auth.ts';
import type { UpstreamResponse } from '../pipeline/upstream.ts';
import { UpstreamFailure } from '../pipeline/upstream-failure.ts';
import type { Epoch } from '../session/session.ts';
import { type Exchange, type ForwardedExchange, newRequestStats } from './exchange.ts';
import { type AttemptResponse, decrypted } from './respond.ts';

/**
 * The response of the first attempt, or of a second one where a row of the retry table asks for it, which `attempt` is given then.
 * `verified` waits for a usable epoch. Rejects with what the last attempt failed with, and with the reason of the exchange's signal.
 */
export async function withOneRetry(
  exchange: Exchange,
  epoch: Epoch,
  verified: () => Promise<Epoch>,
  attempt: (epoch: Epoch, retry?: RetryRow) => Promise<AttemptResponse>,
): Promise<AttemptResponse> {
  const { signal } = exchange.control;
  const first = await attempt(epoch).catch(asFailure);
  const row = first instanceof UpstreamFailure ? retryForFailure(first.retry) : retryOfResponse(first);
  if (row === undefined) return settled(first);

  signal.throwIfAborted();
  let next: Epoch;
  try {
    next = await (row.renew ? renewed(exchange, epoch) : verified()); // the first attempt may have outlived its epoch
    if (row.delay > 0) await delay(row.delay, undefined, { signal });
  } catch {
    signal.throwIfAborted();
    return settled(first); // without a new secret the first response is the one to tell
  }
  count(exchange.deps.counters.upstreamRetries, row.id);
  exchange.log.warn({ retry: row.id, why: row.why }, 'Request failed, trying once more');
  return settled(await attempt(next, row).catch(asFailure));
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

/** The epoch that replaces the rejected one; not waited for where the exchange is aborted. */
async function renewed({ deps, control: { signal } }: Exchange, rejected: Epoch): Promise<Epoch> {
  const renewal = deps.session.renewAfterRejection(rejected.secretId);
  const { promise: aborted, resolve: abort } = Promise.withResolvers<Event>();
  signal.addEventListener('abort', abort);
  await Promise.race([renewal, aborted]).finally(() => signal.removeEventListener('abort', abort));
  signal.throwIfAborted();
  return renewal;
}

/** What goes out in one attempt. */
export interface OutgoingAttempt {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  readonly body: SaltedBody | undefined;
  readonly sealed: EncryptedStream | undefined;
  readonly authorization: string | undefined;
  /** Of a second attempt. */
  readonly retry: RetryRow | undefined;
}

/** Sends one attempt; rejects with UpstreamFailure. A plain 500 that may ask for a retry is read at once. */
export async function sendAttempt(
  exchange: ForwardedExchange,
  outgoing: OutgoingAttempt,
): Promise<AttemptResponse> {
  const { deps, req, res, match, stats, stage } = exchange;
  const { epoch, cipher, sealed, retry } = outgoing;
  const stream = sealed?.stream;
  const attempt = retry === undefined ? 1 : 2;
  if (sealed !== undefined) stats.bytes.toRemote += sealed.contentLength;
  if (stage !== undefined && stream !== undefined) {
    stage('sealed', { attempt });
    stream.once('end', () => stage('sent', { attempt }));
  }
  stats.sentAt ??= performance.now();
  const upstream = await deps.upstream.send(req, res, {
    // Not every server that knows GET knows HEAD; the body of the response goes no further than here.
    method: req.method === 'HEAD' ? 'GET' : (req.method as string),
    path: match.target,
    headers: headersOf(exchange, outgoing),
    body: stream,
    fresh: retry?.fresh === true,
    signal: exchange.control.signal,
  });
  const { statusCode: status, headers } = upstream.response;
  stage?.('head', { attempt, status: status as number });
  const isPlainError = status === 500 && headers['privatemode-encrypted'] === 'false';
  const mayRetry = retry === undefined && match.endpoint.encrypted && isPlainError;
  const plainBody = mayRetry ? await readSmall(exchange, upstream) : undefined;
  return { ...upstream, epoch, cipher, plainBody };
}

function headersOf(
  { deps, req, match, requestId }: ForwardedExchange,
  { epoch, body, sealed, authorization, retry }: OutgoingAttempt,
): Record<string, string> {
  const { encrypted } = match.endpoint;
  const headers = requestHeaders({
    rawHeaders: req.rawHeaders,
    host: deps.upstream.authority,
    authorization,
    requestId: encrypted ? `${requestId}_${retry === undefined ? 0 : 1}` : requestId,
  });
  if (encrypted) {
    const { secretId, key } = epoch;
    const { model, shardKey } = body ?? {};
    const source = { secretId, key, model, shardKey, gpuPolicy: deps.gpuPolicy, nowMs: Date.now() };
    Object.assign(headers, protectionHeaders(source));
  }
  if (sealed === undefined) delete headers['content-type'];
  else {
    headers['content-length'] = String(sealed.contentLength);
    if (sealed.contentType !== undefined) headers['content-type'] = sealed.contentType;
  }
  return headers;
}

const SMALL_BODY = 1024 * 1024;

/** The whole body of a plain error; what goes beyond 1 MiB of it is cut off, with the connection. Throws its failure. */
async function readSmall(exchange: Exchange, { response }: UpstreamResponse): Promise<Buffer> {
  const stats = newRequestStats(); // what is told of it is counted where it is told
  const stream = decrypted({ ...exchange, stats }, response, UNENCRYPTED);
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) {
    chunks.push(chunk as Uint8Array);
    if (stats.bytes.toClient > SMALL_BODY) break; // which destroys both streams
  }
  if (stream.failure !== undefined) throw stream.failure;
  return Buffer.concat(chunks).subarray(0, SMALL_BODY);
}
