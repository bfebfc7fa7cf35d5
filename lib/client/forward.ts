/** One request of a client, one screen: the gateway's chain (lib/gateway/forward.ts) behind another door. */
import { errorResponse, estimateResponse } from '../api/error-format.ts';
import { type EndpointMatch, matchEndpoint } from '../api/match-endpoint.ts';
import { createRequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { mayAskForRetry, withOneRetry } from '../exchange/retry.ts';
import { readPlainError } from '../exchange/unauthenticated.ts';
import { untilAborted } from '../exchange/until-aborted.ts';
import { injectSalt } from '../pipeline/inject-salt.ts';
import { createRequestBody, type RequestBody } from '../pipeline/request-body.ts';
import { createTokenEstimate } from '../pipeline/token-estimate.ts';
import { createTranslator } from '../responses/translator.ts';
import type { Epoch, Session } from '../session/session.ts';
import { isNobody } from './fetch-call.ts';
import type { ClientConfig } from './options.ts';
import { toApplication } from './remedies.ts';
import { respond, UnreadError } from './respond.ts';
import { responseChunks } from './response-chunks.ts';
import { send } from './send.ts';

export interface ClientDeps {
  readonly config: ClientConfig;
  /** Opened by the first request. Throws shutting_down. */
  readonly session: () => Session;
}

/**
 * The response to one request of the application: receive the body → inject the salt → encrypt → upstream → decrypt, with at most one
 * retry around the middle. What goes wrong before a response is a response too, in the error format of the endpoint, as the
 * proxy gives it: SDKs show it and know whether to try again. Rejects only with the reason of the request's own signal.
 */
export async function forward(deps: ClientDeps, request: Request, requestId: string): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const offered = deps.config.responsesApi ? (['responses'] as const) : [];
  const baseUrl = (path: string): string =>
    `${deps.config.apiEndpoint.origin}${path}; any host will do, since requests go to apiEndpoint`;
  const match = matchEndpoint(request.method, pathname + search, offered, undefined, baseUrl);
  const format = match.format === 'plain' ? 'openai' : match.format; // SDKs read a code from JSON only
  try {
    if (match.kind === 'endpoint') return await exchange(deps, request, match, requestId);
    if (match.kind === 'refusal') throw match.error;
    if (match.id === 'count_tokens') return await tokenEstimate(request, requestId);
    throw new PrivatemodeError('unknown_path', 'only the proxy has this path');
  } catch (thrown) {
    if (request.signal.aborted) throw request.signal.reason;
    const unread = thrown instanceof UnreadError ? thrown : undefined;
    // In the Responses API an error is no event before the first one of a response.
    const accept = (!isTranslated(match) && request.headers.get('accept')) || undefined;
    const allow = match.kind === 'refusal' ? match.allow : undefined;
    const reason = asPrivatemodeError(unread?.cause ?? thrown);
    const error = toApplication(reason, deps.config.apiEndpoint);
    const { status, headers, body } = errorResponse(error, { format, requestId, accept, allow });
    return new Response(request.method === 'HEAD' ? null : Uint8Array.from(body), {
      status: unread?.status ?? status,
      headers: { ...headers, ...unread?.headers, ...(isFinal(reason) && FINAL) },
    });
  }
}

const isTranslated = (match: ReturnType<typeof matchEndpoint>): boolean =>
  match.kind === 'endpoint' && match.endpoint.translatedTo !== undefined;

/** SDKs repeat every 5xx. A closed client stays closed, and a host that has never answered was asked three times already. */
const isFinal = (reason: PrivatemodeError): boolean => reason.code === 'shutting_down' || isNobody(reason);
const FINAL = { 'x-should-retry': 'false' } as const;

async function exchange(
  { config, session }: ClientDeps,
  request: Request,
  match: EndpointMatch,
  requestId: string,
): Promise<Response> {
  const { endpoint } = match;
  const { signal } = request;
  const opened = session(); // once: a client that is closed meanwhile ends no response that is whole
  const verified = (): Promise<Epoch> => opened.acquire({ timeoutMs: config.verificationTimeout, signal });
  const salt = config.promptCacheSalt;
  const chat = createRequestBody(endpoint, request.headers.get('content-type') ?? undefined, salt);
  const translator = isTranslated(match) ? createTranslator(requestId) : undefined;
  const incoming = chat && (translator?.request(chat) ?? chat);

  const [body] = await Promise.all([
    incoming && takeIn(request, incoming).then((taken) => injectSalt(taken, salt)),
    verified(),
  ]);

  const newest = await verified(); // a slow upload may have outlived the first one
  const renewed = (rejected: string): Promise<Epoch> => opened.renewAfterRejection(rejected);
  const upstream = await withOneRetry(newest, { verified, renewed, signal }, async (epoch) => {
    const cipher = endpoint.encrypted
      ? createRequestCipher({ id: epoch.secretId, key: epoch.key })
      : undefined;
    const isTrial = opened.current()?.secretId !== epoch.secretId; // its secret is suspended
    const attempt = await send(config, request, { match, epoch, cipher, body, requestId });
    const { status, headers } = attempt.response;
    const mayDeny = cipher && mayAskForRetry(status, headers.get('privatemode-encrypted'));
    const chunks = mayDeny && responseChunks(attempt, config.streamIdleTimeout).chunks;
    return { ...attempt, isTrial, plainBody: chunks ? await readPlainError(chunks) : undefined };
  });
  signal.throwIfAborted();
  const onAuthentic = (): void => {
    if (upstream.isTrial && upstream.cipher?.hasOpened()) opened.authenticated(upstream.epoch.secretId);
  };
  return respond(config, upstream, { match, body, requestId, translator, onAuthentic });
}

/** Takes in the body of the request. Throws unsupported_encoding, what the body is refused for, and the reason of the signal. */
async function takeIn<T>(request: Request, incoming: RequestBody<T>): Promise<T> {
  const encoding = request.headers.get('content-encoding') ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') {
    throw new PrivatemodeError('unsupported_encoding', 'the request body is compressed');
  }
  const reader = request.body?.getReader();
  for (;;) {
    const read = await untilAborted(reader?.read(), request.signal);
    if (read === undefined || read.done) return incoming.finish();
    incoming.feed(read.value);
  }
}

/** Estimated here, as the proxy does: the service counts no tokens, and nothing leaves. Throws what the body is refused for. */
async function tokenEstimate(request: Request, requestId: string): Promise<Response> {
  const { tokens } = await takeIn(request, createTokenEstimate());
  const { headers, body } = estimateResponse(tokens, requestId);
  return new Response(body, { headers });
}
