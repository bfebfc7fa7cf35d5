/** The middle of the chain: one attempt, the first or the second. */

import type { RequestCipher } from '../envelope/protection.ts';
import { attemptHeaders } from '../exchange/headers.ts';
import { mayAskForRetry, type RetryRow } from '../exchange/retry.ts';
import { readPlainError } from '../exchange/unauthenticated.ts';
import { count, RequestStats } from '../observe/counters.ts';
import { UNENCRYPTED } from '../pipeline/decrypt-stream.ts';
import type { EncryptedStream } from '../pipeline/encrypt-stream.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
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
  /** The key of the proxy. */
  readonly configuredKey: string | undefined;
  /** Of a second attempt. */
  readonly retry: RetryRow | undefined;
}

/** Sends one attempt; rejects with UpstreamFailure. A plain 500 that may ask for a retry is read at once. */
export async function sendAttempt(
  exchange: ForwardedExchange,
  outgoing: OutgoingAttempt,
): Promise<AttemptResponse> {
  const { deps, req, res, log, match, stats, stage, requestId } = exchange;
  const { epoch, cipher, body, sealed, retry, authorization, configuredKey } = outgoing;
  const ownKey = configuredKey !== undefined && authorization === `Bearer ${configuredKey}`;
  const read = { epoch, cipher, ownKey };
  const stream = sealed?.stream;
  const attempt = retry === undefined ? 1 : 2;
  if (exchange.receipt !== undefined && cipher !== undefined) exchange.receipt.epoch = epoch;
  if (retry !== undefined) {
    count(deps.counters.upstreamRetries, retry.id);
    log.warn({ retry: retry.id, why: retry.why }, 'Request failed, trying once more');
  }
  const headers = attemptHeaders(
    {
      rawHeaders: req.rawHeaders,
      host: deps.upstream.authority,
      authorization,
      requestId: cipher ? `${requestId}_${attempt - 1}` : requestId,
    },
    cipher && {
      secretId: epoch.secretId,
      key: epoch.key,
      model: body?.model,
      shardKey: body?.shardKey,
      gpuPolicy: deps.gpuPolicy,
      nowMs: Date.now(),
    },
    sealed,
  );
  if (sealed !== undefined) {
    stats.bytes.toRemote += sealed.contentLength;
    headers['content-length'] = String(sealed.contentLength);
  }
  if (stage !== undefined && stream !== undefined) {
    stage('sealed', { attempt });
    stream.once('end', () => stage('sent', { attempt }));
  }
  stats.sentAt ??= performance.now();
  const upstream = await deps.upstream.send(req, res, {
    // Not every server that knows GET knows HEAD; the body of the response goes no further than here.
    method: req.method === 'HEAD' ? 'GET' : (req.method as string),
    path: match.target,
    headers,
    body: stream,
    fresh: retry?.fresh === true,
    signal: exchange.control.signal,
  });
  const { response } = upstream;
  const status = response.statusCode as number;
  stage?.('head', { attempt, status });
  const mark = response.headers['privatemode-encrypted'];
  const mayRetry = retry === undefined && cipher && mayAskForRetry(status, mark);
  if (!mayRetry) return { ...upstream, ...read, plainBody: undefined };
  const uncounted = new RequestStats(); // its bytes are counted where they are shown
  const plain = decrypted(exchange, response, UNENCRYPTED, { stats: uncounted });
  const plainBody = await readPlainError(plain);
  if (plain.failure !== undefined) throw plain.failure;
  return { ...upstream, ...read, plainBody };
}
