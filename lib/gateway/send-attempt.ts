/** The middle of the chain: sends one attempt of a request, the first or the second. */

import type { GpuPolicy, RequestCipher } from '../envelope/protection.ts';
import { attemptHeaders } from '../http-rules/headers.ts';
import { mayAskForRetry, type RetryRow } from '../http-rules/retry.ts';
import { readError } from '../http-rules/unauthenticated.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { count } from '../observe/counters.ts';
import type { EncryptedStream } from '../pipeline/encrypt-stream.ts';
import type { Epoch } from '../session/session.ts';
import type { GatewayOptions } from './deps.ts';
import { openResponse, UNENCRYPTED } from './open-response.ts';
import type { ForwardedExchange } from './request-state.ts';

/** What one attempt sends. */
export interface OutgoingAttempt {
  /** The path and query in the request line. */
  readonly target: string;
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /** For the headers of an encrypted request; its body itself is `sealed`. */
  readonly model: string | undefined;
  readonly shardKey: string | undefined;
  readonly sealed: EncryptedStream | undefined;
  readonly authorization: string | undefined;
  /** The configured key of the proxy. */
  readonly configuredKey: string | undefined;
  /** The row that asks for a second attempt; undefined: this is the first. */
  readonly retry: RetryRow | undefined;
}

/** The head of the response to an attempt, with everything needed to read its body. */
export interface AttemptResponse extends UpstreamResponse {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /**
   * The key of the operator with which the request went out: the configured one, or that of the client's
   * entry in the clients file. Undefined: a key of the application, or none.
   */
  readonly ownKey: string | undefined;
  /** Whether the request went out with a key at all. */
  readonly hasKey: boolean;
  /**
   * Whether the request went out under a suspended secret. An authentic response then shows that the service
   * knows the secret.
   */
  readonly isTrial: boolean;
  /** The body as it came, if it was read already to decide about a retry. */
  readonly errorBody: Buffer | undefined;
}

/** Counts nothing: this body is only read to decide about a retry. */
const UNCOUNTED = { heard() {}, decrypted() {} };

/**
 * Sends one attempt, and resolves with the head of its response. A 500 is read at once, because it may say
 * that the service does not know the secret. Rejects with UpstreamFailure if no response came. If that
 * 500 breaks off, rejects with the reason, and the request is not tried again.
 */
export async function sendAttempt(
  exchange: ForwardedExchange,
  outgoing: OutgoingAttempt,
): Promise<AttemptResponse> {
  const { deps, req, res, life, accounts } = exchange;
  const { requestId, log } = exchange.caller;
  const { target, epoch, cipher, model, shardKey, sealed, retry, authorization, configuredKey } = outgoing;
  // With --clients, no key of an application ever leaves.
  const isOwn =
    authorization !== undefined &&
    (exchange.caller.client !== undefined ||
      (configuredKey !== undefined && authorization === `Bearer ${configuredKey}`));
  const ownKey = isOwn ? authorization.slice('Bearer '.length) : undefined;
  const isTrial = cipher !== undefined && deps.session.current()?.secretId !== epoch.secretId;
  const read = { epoch, cipher, ownKey, hasKey: authorization !== undefined, isTrial };
  const stream = sealed?.stream;
  const attempt = retry === undefined ? 1 : 2;
  if (retry !== undefined) {
    count(deps.metrics.counters.upstreamRetries, retry.id);
    log.warn({ retry: retry.id, why: retry.why }, 'Request failed, trying once more');
  }
  const headers = attemptHeaders(
    {
      rawHeaders: req.rawHeaders,
      host: deps.upstream.authority,
      authorization,
      protocolVersion: deps.settings.protocolVersion,
      requestId: cipher ? `${requestId}_${attempt - 1}` : requestId,
    },
    cipher && {
      secretId: epoch.secretId,
      key: epoch.key,
      model,
      shardKey,
      gpuPolicy: gpuPolicyOf(deps.settings),
      nowMs: deps.clock.now(),
    },
    sealed,
  );
  if (sealed !== undefined) headers['content-length'] = String(sealed.contentLength);
  if (stream !== undefined) {
    accounts.stage('sealed', { attempt });
    stream.once('end', () => accounts.sent(attempt));
  }
  accounts.sends(sealed?.contentLength ?? 0, cipher && epoch);
  const upstream = await deps.upstream.send(res, {
    // HEAD is sent as GET, because not every server that knows GET knows HEAD. The body of the response goes
    // no further than here.
    method: req.method === 'HEAD' ? 'GET' : (req.method as string),
    path: target,
    headers,
    body: stream,
    fresh: retry?.fresh === true,
    signal: life.signal,
  });
  const { response } = upstream;
  const status = response.statusCode as number;
  accounts.stage('head', { attempt, status });
  if (!cipher || !mayAskForRetry(status)) return { ...upstream, ...read, errorBody: undefined };
  const received = openResponse(exchange, response, UNENCRYPTED, { count: UNCOUNTED });
  const errorBody = await readError(received);
  if (received.failure !== undefined) throw received.failure;
  return { ...upstream, ...read, errorBody };
}

const gpuPolicyOf = ({ gpuOcspAllowUnknown, gpuOcspRevokedGracePeriodHours }: GatewayOptions): GpuPolicy => ({
  allowUnknown: gpuOcspAllowUnknown,
  gracePeriodHours: gpuOcspRevokedGracePeriodHours,
});
