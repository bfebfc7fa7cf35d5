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

/** ms of each wait for an epoch: during the upload, after it, before a retry. The renewal of a rejected secret has a limit of its own. */
const EPOCH_TIMEOUT = 30_000;

/**
 * Runs the exchange until its response is handed over: rewrite auth → enter the gate → receive the body, while the service is verified →
 * inject the salt → encrypt and send, once more at most → decrypt → to the application.
 *
 * The body is scanned as it arrives and encrypted as it is sent. None of it is sent before all of it has arrived: the head of the upstream
 * request states model, shard key and length. Where no key is configured or held, the caller's key may leave earlier: for the verification,
 * or for the renewal of a ready epoch that is due. The plaintext is kept until no retry can follow. An event stream is decrypted event by
 * event; of encrypted JSON nothing is shown before all of it is authentic. Lists of models and plain errors are not encrypted, and are
 * marked so.
 *
 * Steps hide more than their names say. `rewriteAuth` chooses the key that leaves and refuses nobody. `takeIn` refuses a bad body as soon as
 * it can tell, puts the real model in place of an alias, translates a request of the Responses API and, once the body is complete, refuses
 * a model in it that the client may not use. `sendAttempt` chooses the headers that leave and reads a plain 500, which may ask for a retry.
 * `respond` answers by itself where a stream breaks after its head (error event, broken connection) and where an encrypted error cannot be
 * read to its end (its status, not its text).
 *
 * Rejects with an error, of which the gateway (gateway.ts) makes the response; after the head of one it breaks the connection. Where the
 * application has left it rejects with whatever its leaving ended, and nobody is answered. The gateway closes the accounts.
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
  await enterGate(exchange); // waits for its permit, or is refused; without a gate at once
  const timeoutMs = deps.patience?.epochTimeout ?? EPOCH_TIMEOUT;
  // Throws api_key_missing where no epoch is ready and nobody has a key to verify with.
  const verified = (): Promise<Epoch> => deps.session.acquire({ offeredKey, timeoutMs, signal });
  const renewed = deps.session.renewAfterRejection;

  // The first failure of the two becomes the response. The other one goes on by itself, and its failure is ignored.
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

  // A retry has a new cipher, and the epoch of that time. If the service did not know the secret, it gets the next one and waits for it where
  // it must. If there is none, this rejects with the reason. Which failures are tried again:
  // lib/exchange/retry.ts and lib/network/upstream-failure.ts.
  const upstream = await withOneRetry(newest, { verified, renewed, signal }, (epoch, retry) => {
    // Endpoints without encryption have no body: none is ever sent unsealed, its plain members (lib/api/endpoints.ts) aside.
    const cipher = match.endpoint.encrypted
      ? createRequestCipher({ id: epoch.secretId, key: epoch.key })
      : undefined;
    const sealed = cipher && body && encryptStream(body, cipher); // short JSON values now, other secret values as the upload reads them
    const { model, shardKey } = body ?? {};
    const credentials = { authorization, configuredKey };
    return sendAttempt(exchange, { target, epoch, cipher, model, shardKey, sealed, retry, ...credentials });
  });
  // Frees memory and reservation. A response may come before the upload has ended. Then the encrypter still reads the body: its memory goes
  // when that ends, its reservation when the response is closed.
  if (upstream.request.writableFinished) body?.release();
  body = undefined; // a response may take long, and the plaintext need not stay in memory meanwhile

  await respond(exchange, requested, upstream);
}
