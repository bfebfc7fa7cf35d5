/** The chain of steps from the application's request to its response, on one screen. */
import { requireModel } from '../access/authenticate-client.ts';
import { aliasIn } from '../api/model-names.ts';
import { untilAborted } from '../clock.ts';
import { RequestCipher } from '../envelope/protection.ts';
import { attemptHeaders, leftOutHeader } from '../http-rules/headers.ts';
import { mayAskForRetry, type RetryRow, withOneRetry } from '../http-rules/retry.ts';
import type { Permit } from '../limits/limits.ts';
import { count } from '../observe/counters.ts';
import type { RequestFacts } from '../pipeline/decrypter.ts';
import { encryptStream } from '../pipeline/encrypt-stream.ts';
import { injectSalt, type SaltedBody } from '../pipeline/inject-salt.ts';
import { bodyReader, NOTHING_ASKED, type ParsedBody } from '../pipeline/request-body.ts';
import { rewriteAuth } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import type { Exchange, ForwardedExchange, SentAttempt } from './exchange.ts';
import { isArriving } from './own-response.ts';
import { LONGEST_PLAIN, readWhole, receive } from './receive.ts';
import { respond } from './service-response.ts';

/**
 * Forwards the request of the exchange, and gives its response to the application: auth rewrite → salt
 * injection → chunked encryption → upstream → decryption, event by event (docs/architecture.md). Nothing of
 * the body is sent before all of it has arrived, because the head states the model, the shard key and the
 * length. The plaintext is kept until no retry can follow. The epoch is acquired before and after the upload,
 * because a slow upload may outlive the first epoch. If no key is configured and no epoch is in force, the
 * first `acquire` does not wait for the body: it verifies the service with the application's own key.
 */
export async function forward(exchange: ForwardedExchange): Promise<void> {
  const { deps, req, match, client } = exchange;
  const configuredKey = deps.key.value();
  const { authorization, offeredKey, operatorKey } = rewriteAuth({
    authorization: req.headers.authorization,
    apiKeyHeader: req.headers['x-api-key'] as string | undefined,
    configuredKey,
    fallback: deps.settings.apiKeyFallback,
    client,
  });
  exchange.authorization = authorization;
  exchange.operatorKey = operatorKey;
  const entered = enterGate(exchange);
  if (entered !== undefined) await entered;
  const timeoutMs = deps.clock.times.epochWait;
  const acquire = (trial?: 'early' | 'never') =>
    deps.session.acquire({ offeredKey, timeoutMs, waiter: exchange, trial });

  // A constant with the promise of the body would keep the body in memory during the response.
  let body = await whileAcquiring(receiveBody(exchange), acquire('early'));
  const asked = askedBy(exchange, body);
  const newest = acquire(match.endpoint.codec === 'none' ? 'never' : undefined);
  const epoch = newest instanceof Promise ? await newest : newest;

  const salt = client === undefined ? deps.salt : { shared: client.sharedSalt, mix: client.mixSalt };
  let salted = body && injectSalt(body, salt);
  const upstream = await withOneRetry(epoch, {
    attempt: (epoch, retry) => sendAttempt(exchange, epoch, salted, retry),
    errorIn({ response }) {
      const attempt = exchange.attempt as SentAttempt;
      if (!attempt.cipher || !mayAskForRetry(response.statusCode as number)) return undefined;
      return readWhole(exchange, response, LONGEST_PLAIN).then((body) => (attempt.errorBody = body.bytes()));
    },
    verified: () => acquire(),
    renewed: (denied) => deps.session.renewAfterDenial(denied, undefined, offeredKey),
    waiter: exchange,
    clock: deps.clock,
  });
  // A response may take long: the body is released now, unless the upload that reads the body still runs.
  if (upstream.request.writableFinished) body?.release();
  body = undefined;
  salted = undefined;

  await respond(exchange, asked, upstream);
}

/** Resolves with the body when both the body and the epoch are there. Rejects with the first failure. */
const whileAcquiring = <Body>(taking: Promise<Body> | undefined, early: unknown) =>
  early instanceof Promise ? Promise.all([taking, early]).then(([body]) => body) : taking;

/**
 * Waits for the permit of the exchange; undefined if there is nothing to wait for. Throws, or rejects with,
 * the codes of the gate (lib/limits/request-gate.ts) and the reason for which the exchange ends early.
 */
export function enterGate(exchange: Exchange): Promise<void> | undefined {
  const { client, deps } = exchange;
  const keep = (permit: Permit): void => {
    if (exchange.res.closed) permit.release(0);
    else exchange.permit = permit;
  };
  const entering = deps.gate?.enter({ client, signal: exchange.signal });
  if (entering instanceof Promise) return untilAborted(entering.then(keep), exchange.signal);
  if (entering !== undefined) keep(entering);
  return undefined;
}

/**
 * Begins to receive the request body. If the endpoint takes no body (a GET, for example), the body is
 * dropped. The response then ends the connection, because nothing limits how long a dropped body takes.
 */
function receiveBody(exchange: ForwardedExchange) {
  const { deps, req, res, match } = exchange;
  const rename = (wanted: string): string | undefined => {
    const alias = deps.aliases && aliasIn(deps.aliases, wanted);
    exchange.alias = alias?.name;
    return alias?.model;
  };
  const reader = bodyReader(match.endpoint, req.headers['content-type'], rename);
  if (reader === undefined) {
    if (isArriving(req)) res.setHeader('connection', 'close');
    req.resume();
    return undefined;
  }
  const isTranslated = match.endpoint.translatedTo !== undefined;
  exchange.translator = isTranslated ? deps.createTranslator?.(exchange.requestId) : undefined;
  return receive(exchange, exchange.translator?.request(reader) ?? reader);
}

/** Notes the model, and returns what the body asks for. Throws client_forbidden, too_many_responses. */
function askedBy(exchange: ForwardedExchange, body: ParsedBody | undefined): RequestFacts {
  if (body === undefined) return NOTHING_ASKED;
  const { model, streaming, choices, format, usage } = body;
  const { client, translator } = exchange;
  exchange.stats.model = model;
  if (client !== undefined) requireModel(client, model, exchange.alias);
  if (translator !== undefined) {
    exchange.toolsLeftOut = translator.leftOut();
    Object.assign(exchange.headers, leftOutHeader(exchange.toolsLeftOut));
    exchange.responseRoom.resize(translator.held()); // the response repeats parts of the request
  }
  return { streaming, choices, format, usage };
}

/** Resolves with the head of the response, or rejects with UpstreamFailure. `retry`: why this is a retry. */
function sendAttempt(exchange: ForwardedExchange, epoch: Epoch, salted?: SaltedBody, retry?: RetryRow) {
  const { deps, req, res, match, authorization, requestId, stats } = exchange;
  const { secretId, key } = epoch;
  // Endpoints without encryption send no body. Nothing of a body is ever sent unencrypted except its plain
  // members (lib/api/endpoints.ts).
  const cipher = match.endpoint.codec === 'none' ? undefined : new RequestCipher({ id: secretId, key });
  const sealed = cipher && salted && encryptStream(salted, cipher);
  const { protocolVersion, gpuOcspAllowUnknown: allowUnknown } = deps.settings;
  const { gpuOcspRevokedGracePeriod: gracePeriodHours } = deps.settings;
  const isTrial = cipher !== undefined && deps.session.current()?.secretId !== secretId;
  exchange.attempt = { epoch, cipher, isTrial, errorBody: undefined };
  if (retry !== undefined) {
    count(deps.metrics.counters.upstreamRetries, retry.id);
    exchange.log('warn', { retry: retry.id, why: retry.why }, 'Request failed, trying once more');
  }
  const sentId = cipher ? `${requestId}_${retry === undefined ? 0 : 1}` : requestId;
  const { authority: host } = deps.upstream;
  const head = { headers: req.headers, host, authorization, protocolVersion, requestId: sentId };
  const { model, shardKey } = salted ?? {};
  const gpuPolicy = { allowUnknown, gracePeriodHours };
  const protection = cipher && { secretId, key, model, shardKey, gpuPolicy, nowMs: deps.clock.now() };
  const headers = attemptHeaders(head, protection, sealed);
  if (sealed !== undefined) {
    headers['content-length'] = String(sealed.contentLength);
    stats.bytes.toRemote += sealed.contentLength;
  }
  const sending = deps.upstream.send(res, {
    // A HEAD is sent as GET, because some servers know no HEAD. The proxy drops the body of the response.
    method: req.method === 'HEAD' ? 'GET' : (req.method as string),
    path: match.target,
    headers,
    body: sealed?.body,
    sent: () => {
      stats.sentAt = performance.now(); // of the last attempt: the time before it counts for the proxy
    },
    fresh: retry?.fresh === true,
    deadline: exchange.deadline,
  });
  exchange.interruptBy((reason) => sending.stop(reason));
  return sending.outcome;
}
