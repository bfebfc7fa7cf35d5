/** The middle of the chain: one attempt, the first or the second. */

import { protectionHeaders, type RequestCipher } from '../envelope/protection.ts';
import { mayAskForRetry, type RetryRow, readSmall } from '../exchange/retry.ts';
import { count, newRequestStats } from '../observe/counters.ts';
import { UNENCRYPTED } from '../pipeline/decrypt-stream.ts';
import type { EncryptedStream } from '../pipeline/encrypt-stream.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import { requestHeaders } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import type { ForwardedExchange } from './exchange.ts';
import { type AttemptResponse, decrypted } from './respond.ts';

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
  const { deps, req, res, log, match, stats, stage } = exchange;
  const { epoch, cipher, sealed, retry, authorization } = outgoing;
  const key = deps.configuredKey();
  const read = { epoch, cipher, ownKey: key !== undefined && authorization === `Bearer ${key}` };
  const stream = sealed?.stream;
  const attempt = retry === undefined ? 1 : 2;
  if (exchange.receipt !== undefined && cipher !== undefined) exchange.receipt.epoch = epoch;
  if (retry !== undefined) {
    count(deps.counters.upstreamRetries, retry.id);
    log.warn({ retry: retry.id, why: retry.why }, 'Request failed, trying once more');
  }
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
  const mayRetry = retry === undefined && cipher && mayAskForRetry(status, headers['privatemode-encrypted']);
  if (!mayRetry) return { ...upstream, ...read, plainBody: undefined };
  const uncounted = { ...exchange, stats: newRequestStats() }; // what is told of it is counted where it is told
  const plain = decrypted(uncounted, upstream.response, UNENCRYPTED);
  const plainBody = await readSmall(plain);
  if (plain.failure !== undefined) throw plain.failure;
  return { ...upstream, ...read, plainBody };
}

function headersOf(
  { deps, req, requestId }: ForwardedExchange,
  { epoch, cipher, body, sealed, authorization, retry }: OutgoingAttempt,
): Record<string, string> {
  const headers = requestHeaders({
    rawHeaders: req.rawHeaders,
    host: deps.upstream.authority,
    authorization,
    requestId: cipher ? `${requestId}_${retry === undefined ? 0 : 1}` : requestId,
  });
  if (cipher !== undefined) {
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
