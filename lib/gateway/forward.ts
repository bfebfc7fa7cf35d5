/** One request, one screen: the chain from the application's request to its response. */

import { createRequestCipher } from '../envelope/protection.ts';
import { withOneRetry } from '../exchange/retry.ts';
import { encryptStream } from '../pipeline/encrypt-stream.ts';
import { injectSalt } from '../pipeline/inject-salt.ts';
import { rewriteAuth } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import type { ForwardedExchange } from './exchange.ts';
import { enterGate, takeIn } from './receive-body.ts';
import { concludeFailed, respond } from './respond.ts';
import { sendAttempt } from './send-attempt.ts';

/**
 * Runs the exchange to its end: rewrite auth → enter the gate → receive the body → inject the salt → encrypt → upstream → decrypt → to the
 * application, with at most one retry around encrypt and upstream. A request is scanned while it arrives, encrypted slice by slice while it
 * is sent, and an event stream is decrypted event by event. No byte is sent before the whole body has arrived, because the head of the
 * upstream request states its model, shard key and length, and a retry sends it again. No encrypted JSON is shown before all of it is
 * authenticated. Never rejects: every failure becomes a response, or the end of the connection.
 */
export async function forward(exchange: ForwardedExchange): Promise<void> {
  const { deps, req, match, stats } = exchange;
  const { signal } = exchange.control;
  const { encrypted } = match.endpoint;
  try {
    const configuredKey = deps.configuredKey();
    const { authorization, offeredKey } = rewriteAuth({
      authorization: req.headers.authorization,
      apiKeyHeader: req.headers['x-api-key'] as string | undefined,
      configuredKey,
      fallback: deps.apiKeyFallback,
      client: exchange.client,
    });
    if (deps.gate !== undefined) await enterGate(exchange, deps.gate); // waits for its permit, or is refused
    const verified = (): Promise<Epoch> =>
      deps.session.acquire({ offeredKey, timeoutMs: deps.epochTimeout, signal });
    const renewed = deps.session.renewAfterRejection;

    // The body arrives while the session verifies the remote, unless an epoch is ready. The first failure of the two becomes the response.
    let [body] = await Promise.all([
      takeIn(exchange).then((taken) => taken && injectSalt(taken, exchange.sharedSalt)),
      verified().then(() => exchange.stage?.('epoch')),
    ]);
    const newest = await verified(); // a slow upload may have outlived the first one
    stats.uploadedAt = performance.now();

    // A retry has a cipher of its own, and the epoch that replaces a rejected one where the service did not know the secret.
    const upstream = await withOneRetry(newest, { verified, renewed, signal }, (epoch, retry) => {
      const cipher = encrypted ? createRequestCipher({ id: epoch.secretId, key: epoch.key }) : undefined;
      const sealed = cipher && body && encryptStream(body, cipher); // seals as the upload reads it
      return sendAttempt(exchange, { epoch, cipher, body, sealed, authorization, configuredKey, retry });
    });
    if (upstream.request.writableFinished) body?.release(); // a response may come before all of it was encrypted
    body = undefined; // a response may take long, and its prompt need not stay in memory meanwhile

    await respond(exchange, upstream);
  } catch (thrown) {
    concludeFailed(exchange, thrown);
  }
}
