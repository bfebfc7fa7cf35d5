/** One request, one screen: the chain of steps from the application's request to its response. */

import { createRequestCipher } from '../envelope/protection.ts';
import { withOneRetry } from '../http-rules/retry.ts';
import { encryptStream } from '../pipeline/encrypt-stream.ts';
import { injectSalt, type SaltedBody } from '../pipeline/inject-salt.ts';
import { rewriteAuth } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import { enterGate } from './enter-gate.ts';
import { type ReceivedBody, saltOf, takeIn } from './receive-body.ts';
import type { ForwardedExchange } from './request-state.ts';
import { respond } from './respond.ts';
import { sendAttempt } from './send-attempt.ts';

/**
 * Forwards the request of the exchange to the service, and gives the service's response to the application.
 * Resolves when the response is handed over. The steps:
 *
 * - `rewriteAuth` chooses the key that leaves with the request. It refuses nobody.
 * - `enterGate` waits for the permit of the request. It rejects if a limit refuses the request.
 * - `takeIn` receives the body. It refuses a bad body as soon as it can tell. It puts the real model in place
 *   of an alias, and translates a request of the Responses API. Once the body is complete, it refuses a model
 *   that the client may not use.
 * - `verified` waits until the service is verified, and returns the epoch. It runs while the body arrives,
 *   and once more after that.
 * - `injectSalt` gives the body its cache salt and its shard key.
 * - `encryptStream` makes a stream that encrypts the body with the cipher of one attempt.
 * - `sendAttempt` chooses the headers that leave, sends one attempt and waits for the head of its response.
 *   It reads a 500 at once, because such an error may ask for a retry. `withOneRetry` calls it twice at most.
 * - `respond` decrypts the response and writes it to the application. If the response breaks off after its
 *   head, `respond` itself breaks the connection; in a stream it writes an error event before that. If an
 *   error cannot be decrypted, `respond` shows its status without its text.
 *
 * The body is scanned while it arrives, and encrypted while it is sent. None of it is sent before all of it
 * has arrived, because the head of the upstream request states the model, the shard key and the length. The
 * plaintext is kept until no retry can follow.
 *
 * If no key is configured, and the session holds none, the key of the application may leave before its body
 * has arrived. The session uses it to verify the service, or to renew a ready epoch that is due.
 *
 * An event stream is decrypted event by event. Of an encrypted JSON response, the application sees nothing
 * before all of it is authentic. Lists of models and plain errors are not encrypted; the response to the
 * application marks them as unauthenticated.
 *
 * Rejects with an error, from which the gateway (gateway.ts) makes the response; if a head is out already,
 * the gateway breaks the connection instead. If the application has left, `forward` rejects with the error of
 * the step that this interrupted, and the gateway responds to nobody. In each case the gateway closes the
 * accounts.
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
  await enterGate(exchange); // waits for the permit, or rejects; without a gate it resolves at once
  const { clock } = deps;
  const timeoutMs = clock.times.epochWait;
  // Rejects with api_key_missing if no epoch is ready and there is no key to verify the service with.
  const verified = (): Promise<Epoch> => deps.session.acquire({ offeredKey, timeoutMs, signal });
  const renewed = deps.session.renewAfterRejection;

  // The first failure of the two becomes the response. The other step goes on by itself, and its failure is
  // ignored.
  let body: (ReceivedBody & SaltedBody) | undefined;
  const [requested] = await Promise.all([
    takeIn(exchange).then(({ requested, body: taken }) => {
      body = taken && injectSalt(taken, saltOf(exchange));
      return requested;
    }),
    verified().then(() => accounts.stage('epoch')),
  ]);
  const { target } = match;
  const newest = await verified(); // a slow upload may outlive the first epoch

  // A retry has a new cipher, and the epoch that is in force then. If the service did not know the secret,
  // the retry waits for the next epoch if it must. If there is none, `withOneRetry` rejects with the reason.
  // Two files say which failures are tried again: lib/http-rules/retry.ts and
  // lib/network/failures.ts.
  const upstream = await withOneRetry(newest, { verified, renewed, signal, clock }, (epoch, retry) => {
    // Endpoints without encryption have no body. No body is ever sent unsealed, except for its plain members
    // (lib/api/endpoints.ts).
    const cipher = match.endpoint.encrypted
      ? createRequestCipher({ id: epoch.secretId, key: epoch.key })
      : undefined;
    // Short JSON values are sealed now, all other secret values when the upload reads them.
    const sealed = cipher && body && encryptStream(body, cipher);
    const { model, shardKey } = body ?? {};
    const credentials = { authorization, configuredKey };
    return sendAttempt(exchange, { target, epoch, cipher, model, shardKey, sealed, retry, ...credentials });
  });
  // Frees the memory and the reservation of the body. A response may come before the upload has ended. Then
  // the encrypter still reads the body: its memory is freed when the upload ends, its reservation when the
  // response is closed.
  if (upstream.request.writableFinished) body?.release();
  // A response may take long, and the plaintext need not stay in memory meanwhile.
  body = undefined;

  await respond(exchange, requested, upstream);
}
