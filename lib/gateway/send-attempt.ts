/** The middle of the chain: sends one attempt of a request, the first or the second. */
import { attemptHeaders } from '../http-rules/headers.ts';
import type { RetryRow } from '../http-rules/retry.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { count } from '../observe/counters.ts';
import type { EncryptedUpload } from '../pipeline/encrypt-stream.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import type { ForwardedExchange, SentAttempt } from './exchange.ts';

interface Outgoing extends Pick<SentAttempt, 'epoch' | 'cipher'>, Pick<SaltedBody, 'model' | 'shardKey'> {
  readonly sealed: EncryptedUpload | undefined;
}

/**
 * Sends one attempt, and resolves with the head of its response. `retry`: the row that asks for a second
 * attempt; undefined: this is the first. Rejects with UpstreamFailure if no response came.
 */
export function sendAttempt(
  exchange: ForwardedExchange,
  { epoch, cipher, sealed, model, shardKey }: Outgoing,
  retry: RetryRow | undefined,
): Promise<UpstreamResponse> {
  const { deps, req, res, authorization, requestId, stats } = exchange;
  const { protocolVersion, gpuOcspAllowUnknown: allowUnknown } = deps.settings;
  const { gpuOcspRevokedGracePeriodHours: gracePeriodHours } = deps.settings;
  const isTrial = cipher !== undefined && deps.session.current()?.secretId !== epoch.secretId;
  exchange.attempt = { epoch, cipher, isTrial, errorBody: undefined };
  if (retry !== undefined) {
    count(deps.metrics.counters.upstreamRetries, retry.id);
    exchange.log('warn', { retry: retry.id, why: retry.why }, 'Request failed, trying once more');
  }
  const headers = attemptHeaders(
    {
      headers: req.headers,
      host: deps.upstream.authority,
      authorization,
      protocolVersion,
      requestId: cipher ? `${requestId}_${retry === undefined ? 0 : 1}` : requestId,
    },
    cipher && {
      secretId: epoch.secretId,
      key: epoch.key,
      model,
      shardKey,
      gpuPolicy: { allowUnknown, gracePeriodHours },
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
