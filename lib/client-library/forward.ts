/** The chain of one request in the client library: its steps are those of lib/gateway/forward.ts. */
import { errorResponse, estimateResponse } from '../api/error-response.ts';
import { matchEndpoint } from '../api/match-endpoint.ts';
import { untilAborted } from '../clock.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { remoteHeaders } from '../http-rules/headers.ts';
import { mayAskForRetry, withOneRetry } from '../http-rules/retry.ts';
import { injectSalt } from '../pipeline/inject-salt.ts';
import { type BodyReader, bodyReader, NOTHING_ASKED } from '../pipeline/request-body.ts';
import { tokenEstimateReader } from '../pipeline/token-estimate.ts';
import { createTranslator } from '../responses-api/translator.ts';
import type { Session } from '../session/session.ts';
import { isUnheard } from './control-call.ts';
import { runtimeLimit, toApplication } from './errors.ts';
import { type ClientConfig, isBytes } from './read-options.ts';
import { LONGEST_PLAIN, respond } from './respond.ts';
import { ResponseBody } from './response-body.ts';
import { type Asked, type FetchAttempt, send } from './send.ts';

/** Reads a request's body. Undefined without a body. Also undefined in Firefox, which lacks the reader. */
type Upload = ReadableStreamDefaultReader<Uint8Array> | undefined;
type Refuse = Parameters<typeof respond>[1]['refuse'];

/** Says that the body of the request failed. The application's error is the `cause`. */
class UploadError extends Error {}

/**
 * The response to one request of the application: receive the body → inject the salt → encrypt → upstream →
 * decrypt. A retry repeats the steps encrypt and upstream, once. An error before the response becomes a
 * response too, in the error format of the endpoint, as in the proxy, so that SDKs show it and know whether
 * to try again. Rejects only with what the application itself caused: the reason of the request's signal, or
 * the error of its body. `session` opens the session, or throws shutting_down.
 */
export async function forward(
  config: ClientConfig,
  session: () => Session,
  request: Request,
  requestId: string,
): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const match = matchEndpoint(request.method, pathname + search, config.responsesApi);
  const upload = request.body?.getReader();

  const refuse: Refuse = (reason, replaced) => {
    const { status, headers, body } = errorResponse(toApplication(reason, config), {
      format: match.format === 'plain' ? 'openai' : match.format, // SDKs read a code from JSON only
      requestId,
      accept: request.headers.get('accept') ?? undefined,
      allow: match.kind === 'refusal' ? match.allow : undefined,
      status: replaced?.status,
    });
    const kept = replaced && remoteHeaders(Object.fromEntries(replaced.headers), false);
    const final = isFinal(reason) && { 'x-should-retry': 'false' };
    return new Response(Uint8Array.from(body), { status, headers: { ...headers, ...kept, ...final } });
  };

  try {
    if (match.kind === 'endpoint') {
      const asked = { config, request, requestId, match };
      return await exchange(asked, upload, session(), refuse);
    }
    if (match.kind === 'refusal') throw match.error;
    if (match.id !== 'count_tokens')
      throw new PrivatemodeError('unknown_path', 'only the proxy has this path');
    // Tokens are estimated locally, as in the proxy, because the service does not count them.
    const { tokens } = await takeIn(request, upload, tokenEstimateReader);
    const { headers, body } = estimateResponse(tokens, requestId);
    return new Response(body, { headers });
  } catch (caught) {
    const thrown = caught instanceof UploadError ? caught.cause : caught;
    // Cancels the upload, as a fetch of the platform does: the application then need not produce what nobody
    // reads. Nothing waits for the cancelling, which does not affect a body that was read to its end.
    upload?.cancel(request.signal.aborted ? request.signal.reason : thrown).catch(() => {});
    request.signal.throwIfAborted();
    if (caught instanceof UploadError) throw thrown;
    return refuse(asPrivatemodeError(thrown));
  }
}

/**
 * Whether to keep SDKs from repeating this request. By themselves, SDKs repeat a request after every 5xx. A
 * closed client stays closed. A host that has never responded was asked three times already. A response that
 * began too late for the runtime would begin too late again.
 */
const isFinal = (reason: PrivatemodeError): boolean =>
  reason.code === 'shutting_down' ||
  isUnheard(reason) ||
  (reason.code === 'first_byte_timeout' && runtimeLimit(reason.cause) !== undefined);

async function exchange(asked: Asked, upload: Upload, session: Session, refuse: Refuse): Promise<Response> {
  const { config, request, requestId } = asked;
  const { endpoint } = asked.match;
  const timeoutMs = config.verificationTimeout;
  const verified = (trial?: 'early') => session.acquire({ timeoutMs, waiter: request, trial });
  const salt = { shared: config.promptCacheSalt };
  const chat = bodyReader(endpoint, request.headers.get('content-type') ?? undefined);
  const translator = endpoint.translatedTo === undefined ? undefined : createTranslator(requestId);
  const read = chat && (translator?.request(chat) ?? chat);

  const [body] = await Promise.all([
    read && takeIn(request, upload, read).then((taken) => injectSalt(taken, salt)),
    verified('early'),
  ]);

  const newest = await verified(); // a slow upload may have outlived the first epoch
  const upstream = await withOneRetry(newest, {
    async attempt(epoch) {
      // The service has denied this epoch's secret: this request tries whether the secret works again.
      const isTrial = session.current()?.secretId !== epoch.secretId;
      return Object.assign((await send(asked, epoch, body)) as FetchAttempt, { isTrial });
    },
    errorIn(answer) {
      if (answer.cipher === undefined || !mayAskForRetry(answer.response.status)) return undefined;
      return new ResponseBody(answer, config).all(LONGEST_PLAIN).then((text) => (answer.errorBody = text));
    },
    verified: () => verified(),
    renewed: (denied) => session.renewAfterDenial(denied, timeoutMs),
    waiter: request,
    clock: config.clock,
  });
  request.signal.throwIfAborted();
  const onAuthentic = (): void => {
    if (!upstream.isTrial || !upstream.cipher?.hasOpened) return;
    upstream.isTrial = false; // the service may deny the secret again while the response runs
    session.authenticated(upstream.epoch.secretId);
  };
  const facts = body ?? NOTHING_ASKED;
  return respond(upstream, { ...asked, facts, translator, onAuthentic, refuse });
}

/**
 * Reads the body of the request with `read`, and throws as `read` does. Throws unsupported_encoding for a
 * compressed body. Throws UploadError if the body fails, a chunk is no Uint8Array, or the request is aborted.
 */
async function takeIn<T>(request: Request, upload: Upload, read: BodyReader<T>): Promise<T> {
  const encoding = request.headers.get('content-encoding') ?? 'identity';
  if (encoding.toLowerCase() !== 'identity')
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  const taking =
    upload === undefined ? request.arrayBuffer().then((all) => Buffer.from(all)) : bytesOf(upload);
  const bytes = await untilAborted(taking, request.signal).catch((cause: unknown) => {
    throw new UploadError('the body of the request failed', { cause });
  });
  return read(bytes, {});
}

/** All bytes of the body. Chunks are copied, since the application may use their memory again. */
async function bytesOf(upload: NonNullable<Upload>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (;;) {
    const { value, done } = await upload.read();
    if (done) return Buffer.concat(chunks);
    if (!isBytes(value)) throw new TypeError('a chunk of the request body is no Uint8Array');
    chunks.push(Buffer.from(value));
  }
}
