/** One request, one screen: the chain from the application's request to its response. */

import { createRequestCipher } from '../envelope/protection.ts';
import { withOneRetry } from '../exchange/retry.ts';
import { encryptStream } from '../pipeline/encrypt-stream.ts';
import { injectSalt, type SaltedBody } from '../pipeline/inject-salt.ts';
import { rewriteAuth } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import { enterGate } from './enter-gate.ts';
import type { ForwardedExchange } from './exchange.ts';
import { type ReceivedBody, saltOf, takeIn } from './receive-body.ts';
import { respond } from './respond.ts';
import { sendAttempt } from './send-attempt.ts';

const EPOCH_TIMEOUT = 30_000;

/**
 * Runs the exchange until its response is handed over: rewrite auth → enter the gate → receive the body → inject the salt → encrypt →
 * upstream → decrypt → to the application, with at most one retry around encrypt and upstream.
 *
 * The steps do more than their names say. `takeIn` also puts the real model in place of an alias, translates a request of the Responses
 * API, and refuses a model that the client may not use. `sendAttempt` chooses the headers that leave and, where the service answers with a
 * plain 500, reads it, since it may ask for a retry. `respond` ends by itself a stream that fails after its head, and an error of the
 * service that does not authenticate. The gateway (gateway.ts) turns what is thrown here into a response, and closes the accounts.
 *
 * A request is scanned while it arrives and encrypted slice by slice while it is sent; an event stream is decrypted event by event. No
 * byte of the body is sent before the whole body has arrived, because the head of the upstream request states its model, shard key and length, and a
 * retry sends it again. (A verification that waits for a key may send the caller's key to the service earlier.) No encrypted JSON is
 * shown before all of it is authenticated. Rejects with what it failed with: a PrivatemodeError, or ClientGone.
 */
export async function forward(exchange: ForwardedExchange): Promise<void> {
  const { deps, req, match, caller, accounts } = exchange;
  const { signal } = exchange.life;
  const configuredKey = deps.key.value();
  const { authorization, offeredKey } = rewriteAuth({
    authorization: req.headers.authorization,
    apiKeyHeader: req.headers['x-api-key'] as string | undefined,
    configuredKey,
    fallback: deps.settings.apiKeyFallback,
    client: caller.client,
  });
  await enterGate(exchange, deps.gate); // waits for its permit, or is refused
  const timeoutMs = deps.patience?.epochTimeout ?? EPOCH_TIMEOUT;
  const verified = (): Promise<Epoch> => deps.session.acquire({ offeredKey, timeoutMs, signal });
  const renewed = deps.session.renewAfterRejection;

  // The body arrives while the session verifies the remote, unless an epoch is ready. The first failure of the two is the one to tell.
  let body: (ReceivedBody & SaltedBody) | undefined;
  const [requested] = await Promise.all([
    takeIn(exchange).then(({ requested, body: taken }) => {
      body = taken && injectSalt(taken, saltOf(exchange).shared);
      return requested;
    }),
    verified().then(() => accounts.stage('epoch')),
  ]);
  const target = requested.aboutModel === undefined ? match.target : '/v1/models';
  const newest = await verified(); // a slow upload may have outlived the first one
  accounts.uploaded();

  // A retry has a cipher of its own, and the epoch that replaces a rejected one where the service did not know the secret.
  const upstream = await withOneRetry(newest, { verified, renewed, signal }, (epoch, retry) => {
    const cipher = match.endpoint.encrypted
      ? createRequestCipher({ id: epoch.secretId, key: epoch.key })
      : undefined;
    const sealed = cipher && body && encryptStream(body, cipher); // long values are sealed as the upload reads them
    return sendAttempt(exchange, {
      target,
      epoch,
      cipher,
      body,
      sealed,
      authorization,
      configuredKey,
      retry,
    });
  });
  if (upstream.request.writableFinished) body?.release(); // a response may come before all of it was encrypted
  body = undefined; // a response may take long, and its prompt need not stay in memory meanwhile

  await respond(exchange, requested, upstream);
}
