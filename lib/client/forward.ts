/** One request of a client, one screen: the gateway's chain (lib/gateway/forward.ts) behind another door. */
import { errorResponse } from '../api/error-format.ts';
import { type EndpointMatch, matchEndpoint } from '../api/match-endpoint.ts';
import { retryForAnswer, retryForFailure } from '../api/retry.ts';
import { createRequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { injectSalt, type SaltedBody } from '../pipeline/inject-salt.ts';
import { createRequestBody } from '../pipeline/request-body.ts';
import type { Epoch, Session } from '../session/session.ts';
import type { ClientConfig } from './options.ts';
import { respond } from './respond.ts';
import { type Attempt, send } from './send.ts';

export interface ClientDeps {
  readonly config: ClientConfig;
  /** Opened by the first request. Throws api_key_missing. */
  readonly session: () => Session;
}

/**
 * The response to one request of the application: take in the body → inject the salt → encrypt → upstream → decrypt, with at most one
 * retry around the middle. What goes wrong before a response is a response too, in the error format of the endpoint, as the
 * proxy gives it: SDKs show it and know whether to try again. Rejects only with the reason of the request's own signal.
 */
export async function forward(deps: ClientDeps, request: Request, requestId: string): Promise<Response> {
  const { pathname, search } = new URL(request.url);
  const match = matchEndpoint(request.method, pathname + search);
  const format = match.kind === 'endpoint' ? match.endpoint.errorFormat : match.format;
  try {
    if (match.kind === 'local') throw new PrivatemodeError('unknown_path', 'only the proxy has this path');
    if (match.kind === 'refusal') throw new PrivatemodeError(match.code, match.message);
    return await exchange(deps, request, match, requestId);
  } catch (thrown) {
    if (request.signal.aborted) throw request.signal.reason;
    const accept = request.headers.get('accept') ?? undefined;
    const allow = match.kind === 'refusal' ? match.allow : undefined;
    const { status, headers, body } = errorResponse(asPrivatemodeError(thrown), {
      ...{ format, requestId, accept, allow },
    });
    return new Response(Uint8Array.from(body), { status, headers });
  }
}

async function exchange(
  { config, session }: ClientDeps,
  request: Request,
  match: EndpointMatch,
  requestId: string,
): Promise<Response> {
  const { endpoint } = match;
  const verified = (): Promise<Epoch> =>
    session().acquire({ timeoutMs: config.verificationTimeout, signal: request.signal });

  const [body] = await Promise.all([takeIn(request, match, config.promptCacheSalt), verified()]);

  const attempt = (epoch: Epoch): Promise<Attempt> => {
    const cipher = endpoint.encrypted
      ? createRequestCipher({ id: epoch.secretId, key: epoch.key })
      : undefined;
    return send(config, request, { match, epoch, cipher, body, requestId });
  };
  const epoch = await verified(); // a slow upload may have outlived the first one
  let upstream = await attempt(epoch);
  const { response, plainBody, connectionReset } = upstream;
  const row = connectionReset
    ? retryForFailure('connection_reset')
    : response && plainBody && retryForAnswer(response.status, new TextDecoder('latin1').decode(plainBody));
  if (row !== undefined) {
    const next = row.renew
      ? await session()
          .renewAfterRejection(epoch.secretId)
          .catch(() => undefined)
      : epoch;
    if (next !== undefined) upstream = await attempt(next);
  }
  return respond(config, upstream, { match, body, requestId });
}

/** Takes in the body of the request and gives it its salt; undefined where the endpoint has none. */
async function takeIn(
  request: Request,
  { endpoint }: EndpointMatch,
  salt: string | undefined,
): Promise<SaltedBody | undefined> {
  const incoming = createRequestBody(endpoint, request.headers.get('content-type') ?? undefined, salt);
  if (incoming === undefined) return undefined;
  const reader = request.body?.getReader();
  for (;;) {
    const read = await reader?.read();
    if (read === undefined || read.done) break;
    incoming.feed(read.value);
  }
  return injectSalt(await incoming.finish(), salt);
}
