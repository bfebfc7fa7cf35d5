/** The middle of the chain: sends one attempt of a request, the first or the second. */
import type { RequestCipher } from '../envelope/protection.ts';
import { attemptHeaders } from '../http-rules/headers.ts';
import type { RetryRow } from '../http-rules/retry.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { count } from '../observe/counters.ts';
import type { EncryptedUpload } from '../pipeline/encrypt-stream.ts';
import type { Epoch } from '../session/session.ts';
import type { ForwardedExchange } from './exchange.ts';

/** What one attempt sends. */
interface OutgoingAttempt {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /** For the headers of an encrypted request; its body itself is `sealed`. */
  readonly model: string | undefined;
  readonly shardKey: string | undefined;
  readonly sealed: EncryptedUpload | undefined;
  readonly authorization: string | undefined;
  /** The configured key of the proxy. */
  readonly configuredKey: string | undefined;
  /** The row that asks for a second attempt; undefined: this is the first. */
  readonly retry: RetryRow | undefined;
}

/**
 * Sends one attempt, and resolves with the head of its response. Rejects with UpstreamFailure if no response
 * came.
 */
export function sendAttempt(
  exchange: ForwardedExchange,
  outgoing: OutgoingAttempt,
): Promise<UpstreamResponse> {
  const { deps, req, res, requestId, stats } = exchange;
  const { epoch, cipher, model, shardKey, sealed, retry, authorization } = outgoing;
  const { settings } = deps;
  const isTrial = cipher !== undefined && deps.session.current()?.secretId !== epoch.secretId;
  const hasKey = authorization !== undefined;
  exchange.attempt = { epoch, cipher, isTrial, hasKey, ownKey: ownKeyOf(exchange, outgoing) };
  if (retry !== undefined) {
    count(deps.metrics.counters.upstreamRetries, retry.id);
    exchange.log('warn', { retry: retry.id, why: retry.why }, 'Request failed, trying once more');
  }
  const headers = attemptHeaders(
    {
      headers: req.headers,
      host: deps.upstream.authority,
      authorization,
      protocolVersion: settings.protocolVersion,
      requestId: cipher ? `${requestId}_${retry === undefined ? 0 : 1}` : requestId,
    },
    cipher && {
      secretId: epoch.secretId,
      key: epoch.key,
      model,
      shardKey,
      gpuPolicy: {
        allowUnknown: settings.gpuOcspAllowUnknown,
        gracePeriodHours: settings.gpuOcspRevokedGracePeriodHours,
      },
      nowMs: deps.clock.now(),
    },
    sealed,
  );
  if (sealed !== undefined) {
    headers['content-length'] = String(sealed.contentLength);
    stats.bytes.toRemote += sealed.contentLength;
  }
  const sending = deps.upstream.send(res, {
    // HEAD is sent as GET, because not every server that knows GET knows HEAD. The body of the response goes
    // no further than here.
    method: req.method === 'HEAD' ? 'GET' : (req.method as string),
    path: exchange.match.target,
    headers,
    body: sealed?.body,
    sent: () => {
      stats.sentAt ??= performance.now();
    },
    fresh: retry?.fresh === true,
    deadline: exchange.deadline,
  });
  exchange.interruptBy((reason) => sending.stop(reason));
  return sending.outcome;
}

/**
 * The key of the operator with which the request goes out: the configured one, or that of the client's entry
 * in the clients file. Undefined: a key of the application, or none.
 */
function ownKeyOf(
  { client }: ForwardedExchange,
  { authorization, configuredKey }: OutgoingAttempt,
): string | undefined {
  // With --clients, no key of an application ever leaves.
  const isOwn =
    authorization !== undefined &&
    (client !== undefined || (configuredKey !== undefined && authorization === `Bearer ${configuredKey}`));
  return isOwn ? authorization.slice('Bearer '.length) : undefined;
}
