import { setTimeout as delay } from 'node:timers/promises';
import { type RetryRow, retryForAnswer, retryForFailure } from '../api/retry.ts';
import { createRequestCipher, protectionHeaders } from '../envelope/protection.ts';
import { asPrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import type { UpstreamResponse } from '../pipeline/attempt.ts';
import type { PreparedBody, RequestBodyStage } from '../pipeline/request-body.ts';
import { decideAuth } from '../pipeline/rewrite-auth.ts';
import { sealedReadable } from '../pipeline/streams.ts';
import { UpstreamFailure } from '../pipeline/upstream-failure.ts';
import type { Epoch } from '../session/session.ts';
import { answerError } from './answers.ts';
import { breakConnection } from './break-connection.ts';
import { stageFor } from './codecs.ts';
import { isArriving } from './early-answer.ts';
import { type Answered, type Call, logStage, noteFailure, staged } from './exchange.ts';
import { requestHeaders } from './headers.ts';
import { identityOpener, relay } from './relay.ts';
import { newTally } from './request-stats.ts';
import { respond } from './respond.ts';
import { ClientGone, type ReceivedBody, receiveBody } from './upload.ts';
import { countPieces } from './upload-turns.ts';

/** An attempt's request headers that come from the client, read before they are replaced. */
interface ClientHead {
  readonly rawHeaders: readonly string[];
  readonly method: string;
  readonly authorization: string | undefined;
}

/** Runs the exchange to its end. Never rejects: every failure becomes an answer, or the end of the connection. */
export async function exchange(call: Call): Promise<void> {
  const { world, req } = call;
  try {
    const { authorization, offeredKey } = decideAuth({
      authorization: req.headers.authorization,
      apiKeyHeader: req.headers['x-api-key'] as string | undefined,
      configuredKey: world.configuredKey(),
      fallback: world.apiKeyFallback,
    });
    // Not every server that knows GET knows HEAD; the body of the answer goes no further than here.
    const method = req.method === 'HEAD' ? 'GET' : (req.method as string);
    const head = { rawHeaders: req.rawHeaders, method, authorization };
    const attested = (): Promise<Epoch> =>
      world.session.acquire({ offeredKey, timeoutMs: world.epochTimeout, signal: call.signal });
    // Nothing here holds the body: an answer may take long, and its prompt need not stay in memory meanwhile.
    await respond(call, await answerOf(call, head, attested));
  } catch (thrown) {
    conclude(call, thrown);
  }
}

/** Takes the request in, and sends it on once the remote is verified; resolves with the head of the answer. */
async function answerOf(call: Call, head: ClientHead, attested: () => Promise<Epoch>): Promise<Answered> {
  const { req, world, match, tally } = call;
  const stage = stageFor(match.endpoint, req.headers['content-type'], world.sharedSalt);
  // The body arrives while the remote is being verified; whichever fails first answers.
  const [body] = await Promise.all([
    stage === undefined ? discardBody(call) : staged(call, 'received', receive(call, stage)),
    staged(call, 'epoch', attested()),
  ]);
  const epoch = await attested(); // a slow upload may have outlived the first one
  tally.uploadedAt = performance.now();
  tally.model = body?.model;
  if (body !== undefined) {
    const { streaming, choices, format, usage } = body;
    call.asked = { streaming, choices, format, usage };
  }
  const answered = await answeredBy(call, head, body, epoch, attested);
  if (answered.request.writableFinished) body?.release(); // or some of it has yet to be sealed
  return answered;
}

/** Whatever becomes of the request, nothing stays reserved for its body. */
function receive({ req, res, world, tally, signal }: Call, stage: RequestBodyStage): Promise<ReceivedBody> {
  const reservation = world.uploadBudget.open();
  res.once('close', reservation.release);
  return receiveBody(req, stage, world.limits, { tally, signal, reservation });
}

/**
 * A body where none belongs is read and dropped: GET requests may carry one, nothing of it is sent on. It is not waited
 * for, so the answer ends the connection; nobody watches how long the body would take.
 */
async function discardBody({ req, res }: Call): Promise<undefined> {
  if (isArriving(req)) res.setHeader('connection', 'close');
  req.on('data', countPieces(req));
}

async function answeredBy(
  call: Call,
  head: ClientHead,
  body: PreparedBody | undefined,
  epoch: Epoch,
  attested: () => Promise<Epoch>,
): Promise<Answered> {
  const { signal, world } = call;
  const first = await attempt(call, head, body, epoch, 0, false).catch(asFailure);
  const row = first instanceof UpstreamFailure ? retryForFailure(first.retry) : retryOfAnswer(first);
  if (row === undefined) return settled(first);

  signal.throwIfAborted();
  let next = epoch;
  try {
    next = row.renew
      ? await unlessAborted(signal, world.session.renewAfterRejection(epoch.secretId))
      : await attested(); // the first attempt may have outlived its epoch
    if (row.delay > 0) await delay(row.delay, undefined, { signal });
  } catch {
    signal.throwIfAborted();
    return settled(first); // without a new secret the first answer is the one to tell
  }
  count(world.counters.upstreamRetries, row.id);
  call.log.warn({ retry: row.id, why: row.why }, 'Request failed, trying once more');
  return settled(await attempt(call, head, body, next, 1, row.fresh).catch(asFailure));
}

/** Rejects with the reason of `signal` where that aborts before the promise has come to something. */
async function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener('abort', abort);
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function asFailure(thrown: unknown): UpstreamFailure {
  if (thrown instanceof UpstreamFailure) return thrown;
  throw thrown;
}

function settled(outcome: Answered | UpstreamFailure): Answered {
  if (outcome instanceof UpstreamFailure) throw outcome.error;
  return outcome;
}

const retryOfAnswer = ({ response, plainBody }: Answered): RetryRow | undefined =>
  plainBody && retryForAnswer(response.statusCode as number, plainBody.toString('latin1'));

/** One attempt: a fresh nonce, the body sealed anew, one request. */
async function attempt(
  call: Call,
  head: ClientHead,
  body: PreparedBody | undefined,
  epoch: Epoch,
  number: 0 | 1,
  fresh: boolean,
): Promise<Answered> {
  const { world, match, requestId } = call;
  const { encrypted } = match.endpoint;
  const cipher = encrypted ? createRequestCipher({ id: epoch.secretId, key: epoch.key }) : undefined;
  const sealed = cipher && body?.seal(cipher);
  const headers: Record<string, string> = requestHeaders({
    rawHeaders: head.rawHeaders,
    host: world.upstream.authority,
    authorization: head.authorization,
    requestId: encrypted ? `${requestId}_${number}` : requestId,
  });
  if (encrypted) {
    const { secretId, key } = epoch;
    const { model, shardKey } = body ?? {};
    Object.assign(
      headers,
      protectionHeaders({ secretId, key, model, shardKey, gpuPolicy: world.gpuPolicy, nowMs: Date.now() }),
    );
  }
  if (sealed !== undefined) {
    headers['content-length'] = String(sealed.contentLength);
    call.tally.bytes.toRemote += sealed.contentLength;
    if (sealed.contentType !== undefined) headers['content-type'] = sealed.contentType;
  } else delete headers['content-type'];

  const outgoing = sealed && sealedReadable(sealed);
  if (call.debug && outgoing !== undefined) {
    logStage(call, 'sealed', { attempt: number + 1 });
    outgoing.once('end', () => logStage(call, 'sent', { attempt: number + 1 }));
  }
  call.tally.sentAt ??= performance.now();
  const sent = await world.upstream.send(call.req, call.res, {
    method: head.method,
    path: match.target,
    headers,
    body: outgoing,
    fresh,
    signal: call.signal,
  });
  logStage(call, 'head', { attempt: number + 1, status: sent.response.statusCode as number });
  const mayRetry = number === 0 && encrypted && isPlainServerError(sent);
  return { ...sent, epoch, cipher, plainBody: mayRetry ? await readSmall(call, sent) : undefined };
}

const isPlainServerError = ({ response }: UpstreamResponse): boolean =>
  response.statusCode === 500 && response.headers['privatemode-encrypted'] === 'false';

const SMALL_BODY = 1024 * 1024;

/** The whole body of a plain error; what goes beyond 1 MiB of it is cut off, with the connection. Throws its failure. */
async function readSmall({ world }: Call, { response }: UpstreamResponse): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reading = relay(response, identityOpener, {
    tally: newTally(), // what is answered from it is counted there
    idleTimeout: world.streamIdleTimeout,
    signal: world.terminate,
    write(chunk) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > SMALL_BODY) reading.stop();
      return true;
    },
  });
  const failure = await reading.ended;
  if (failure !== undefined) throw failure;
  return Buffer.concat(chunks, Math.min(length, SMALL_BODY));
}

/** The end of an exchange that could not be answered by the upstream's own words. */
function conclude(call: Call, thrown: unknown): void {
  const { req, res, world, match, requestId } = call;
  if (thrown instanceof ClientGone || res.destroyed) {
    res.destroy();
    return;
  }
  const error = asPrivatemodeError(thrown);
  noteFailure(call, error);
  if (res.headersSent) {
    breakConnection(call);
    return;
  }
  answerError(
    req,
    res,
    error,
    { dialect: match.endpoint.dialect, requestId },
    { headers: call.extraHeaders },
  );
  count(world.counters.responses, res.statusCode);
}
