/**
 * The chain of one request in the client library, on one screen: the steps are those of the gateway
 * (lib/gateway/forward.ts).
 */
import { errorResponse, estimateResponse } from '../api/error-response.ts';
import { type EndpointMatch, matchEndpoint } from '../api/match-endpoint.ts';
import { untilAborted } from '../clock.ts';
import { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { mayAskForRetry, withOneRetry } from '../http-rules/retry.ts';
import { injectSalt } from '../pipeline/inject-salt.ts';
import { type BodyReader, bodyReader } from '../pipeline/request-body.ts';
import { tokenEstimateReader } from '../pipeline/token-estimate.ts';
import { createTranslator } from '../responses-api/translator.ts';
import type { Session } from '../session/session.ts';
import { isNobody, runtimeLimit } from './control-call.ts';
import type { ClientConfig } from './options.ts';
import { toApplication } from './remedies.ts';
import { respond, UnreadError } from './respond.ts';
import { collected, responseChunks } from './response-chunks.ts';
import { send } from './send.ts';

/** Bytes of the longest error that is read to decide about a retry. */
const LONGEST_ERROR = 1024 * 1024;

export interface ClientDeps {
  readonly config: ClientConfig;
  /** The session, which the first request opens. Throws shutting_down. */
  readonly session: () => Session;
}

/**
 * The response to one request of the application: receive the body → inject the salt → encrypt → upstream →
 * decrypt. A retry runs encrypt and upstream once more, at most. An error before the response becomes a
 * response too, in the error format of the endpoint, as the proxy gives it: SDKs show it and know whether to
 * try again. Rejects only with what the application itself brought: the reason of the request's signal, or
 * the error of its body.
 */
export async function forward(deps: ClientDeps, request: Request, requestId: string): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const offered = deps.config.responsesApi ? (['responses'] as const) : [];
  const match = matchEndpoint(request.method, pathname + search, offered);
  const format = match.format === 'plain' ? 'openai' : match.format; // SDKs read a code from JSON only
  const upload = bodyOf(request)?.getReader();
  const given = { request, upload };
  try {
    if (match.kind === 'endpoint') return await exchange(deps, given, match, requestId);
    if (match.kind === 'refusal') throw match.error;
    if (match.id === 'count_tokens') return await tokenEstimate(given, requestId);
    throw new PrivatemodeError('unknown_path', 'only the proxy has this path');
  } catch (caught) {
    const thrown = caught instanceof UploadError ? caught.cause : caught;
    // As a fetch of the platform does: the application need not produce what nobody reads. Nobody waits for
    // it, and a body that was read to its end is not cancelled.
    upload?.cancel(request.signal.aborted ? request.signal.reason : thrown).catch(() => {});
    if (request.signal.aborted) throw request.signal.reason;
    if (caught instanceof UploadError) throw thrown;
    const unread = thrown instanceof UnreadError ? thrown : undefined;
    const accept = request.headers.get('accept') ?? undefined;
    const allow = match.kind === 'refusal' ? match.allow : undefined;
    const reason = asPrivatemodeError(unread?.cause ?? thrown);
    const error = toApplication(reason, deps.config);
    const context = { format, requestId, accept, allow, status: unread?.status };
    const { status, headers, body } = errorResponse(error, context);
    return new Response(request.method === 'HEAD' ? null : Uint8Array.from(body), {
      status,
      headers: { ...headers, ...unread?.headers, ...(isFinal(reason) && FINAL) },
    });
  }
}

/**
 * Whether repeating the request makes no sense; SDKs repeat every 5xx. A closed client stays closed, a host
 * that has never responded was asked three times already, and an answer that begins later than the runtime
 * waits would do so again.
 */
const isFinal = (reason: PrivatemodeError): boolean =>
  reason.code === 'shutting_down' ||
  isNobody(reason) ||
  (reason.code === 'first_byte_timeout' && runtimeLimit(reason.cause) !== undefined);
const FINAL = { 'x-should-retry': 'false' } as const;

/** A request of the application, and the reader of its body. */
interface Incoming {
  readonly request: Request;
  readonly upload: ReadableStreamDefaultReader<Uint8Array> | undefined;
}

/** Says that the body of the request failed; `cause` is the error of the application. */
class UploadError extends Error {}

/** The body of the request. Firefox has no Request.body: there the whole body comes as one chunk. */
function bodyOf(request: Request): ReadableStream<Uint8Array> | null {
  if (request.body !== undefined) return request.body;
  return new ReadableStream(
    {
      async pull(controller) {
        controller.enqueue(new Uint8Array(await request.arrayBuffer()));
        controller.close();
      },
    },
    { highWaterMark: 0 },
  );
}

async function exchange(
  { config, session }: ClientDeps,
  given: Incoming,
  match: EndpointMatch,
  requestId: string,
): Promise<Response> {
  const { endpoint } = match;
  const { request } = given;
  const { signal } = request;
  // called once: if the client is closed meanwhile, that must not end a response that is whole
  const opened = session();
  const timeoutMs = config.verificationTimeout;
  const verified = (trial?: 'early') => opened.acquire({ timeoutMs, waiter: request, trial });
  const salt = config.promptCacheSalt;
  const chat = bodyReader(endpoint, request.headers.get('content-type') ?? undefined);
  const translator = endpoint.translatedTo === undefined ? undefined : createTranslator(requestId);
  const read = chat && (translator?.request(chat) ?? chat);

  const [body] = await Promise.all([
    read && takeIn(given, read).then((taken) => injectSalt(taken, { shared: salt })),
    verified('early'),
  ]);

  const newest = await verified(); // a slow upload may have outlived the first epoch
  let errorBody: Buffer | undefined; // of the last attempt
  const upstream = await withOneRetry(newest, {
    async attempt(epoch) {
      errorBody = undefined;
      const secret = { id: epoch.secretId, key: epoch.key };
      const cipher = endpoint.codec === 'none' ? undefined : new RequestCipher(secret);
      // the service denies the secret of this epoch, and this request tries it
      const isTrial = opened.current()?.secretId !== epoch.secretId;
      return { ...(await send(config, request, { match, epoch, cipher, body, requestId })), isTrial };
    },
    errorIn(answer) {
      if (answer.cipher === undefined || !mayAskForRetry(answer.response.status)) return undefined;
      const { chunks } = responseChunks(answer, config);
      return collected(chunks, LONGEST_ERROR).then((text) => (errorBody = text));
    },
    verified: () => verified(),
    renewed: (rejected) => opened.renewAfterDenial(rejected, timeoutMs),
    waiter: request,
    clock: config.clock,
  });
  signal.throwIfAborted();
  const onAuthentic = (): void => {
    if (upstream.isTrial && upstream.cipher?.hasReceived) opened.authenticated(upstream.epoch.secretId);
  };
  return respond(config, { ...upstream, errorBody }, { match, body, requestId, translator, onAuthentic });
}

/**
 * Reads the body of the request with `read`. Throws unsupported_encoding, UploadError, and as `read` does.
 * Chunks are copied, since the application may use their memory again.
 */
async function takeIn<T>(given: Incoming, read: BodyReader<T>): Promise<T> {
  const encoding = given.request.headers.get('content-encoding') ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  const chunks: Buffer[] = [];
  for (let chunk = await nextChunk(given); chunk !== undefined; chunk = await nextChunk(given)) {
    chunks.push(Buffer.from(chunk));
  }
  return read(Buffer.concat(chunks), {});
}

/**
 * The next chunk of the body; undefined after the last. Throws UploadError if the body fails or has a
 * chunk that is no Uint8Array, and if the request is aborted.
 */
async function nextChunk({ request, upload }: Incoming): Promise<Uint8Array | undefined> {
  try {
    const read = await untilAborted(upload?.read(), request.signal);
    if (read === undefined || read.done) return undefined;
    // instanceof would refuse the bytes of another realm, such as that of a test runner.
    if (Object.prototype.toString.call(read.value) === '[object Uint8Array]') return read.value;
    throw new TypeError('a chunk of the request body is no Uint8Array');
  } catch (cause) {
    throw new UploadError('the body of the request failed', { cause });
  }
}

/**
 * The response to count_tokens. The tokens are estimated here, as in the proxy: the service counts none, and
 * nothing leaves. Throws the errors with which a body is refused.
 */
async function tokenEstimate(given: Incoming, requestId: string): Promise<Response> {
  const { tokens } = await takeIn(given, tokenEstimateReader);
  const { headers, body } = estimateResponse(tokens, requestId);
  return new Response(body, { headers });
}
