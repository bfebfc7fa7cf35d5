/** The last step of the chain: decrypts the upstream response and gives it to the application. */
import { listWithAliases } from '../api/model-aliases.ts';
import type { RequestCipher } from '../envelope/protection.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { remoteHeaders, responseHeaders } from '../http-rules/headers.ts';
import { ForeignError, plainContentType, responseKind } from '../http-rules/response-kind.ts';
import { clientTooOld } from '../network/failures.ts';
import type { UpstreamResponse } from '../network/upstream.ts';
import { overflowBody } from '../pipeline/context-overflow.ts';
import { decryptBody, MAX_BODY_BYTES } from '../pipeline/decrypt-body.ts';
import type { Exchange, ForwardedExchange, SentAttempt } from './exchange.ts';
import { respondError, respondWhole } from './own-response.ts';
import { LONGEST_PLAIN, readWhole } from './read-whole.ts';
import { type Requested, respondStream } from './respond-stream.ts';

/** The head of the service's response; `errorBody`: its body, if the decision about a retry has read it. */
type ServiceResponse = UpstreamResponse & { readonly errorBody: Buffer | undefined };

/**
 * Reads the upstream response in the way that its head asks for, and gives it to the application. Rejects,
 * with nothing written, if the application must not see the response. Once the head is out, a failure ends
 * the response with a visibly broken connection, and in a stream with an error event before that. Rejects
 * with ClientGone if the application has left.
 */
export function respond(
  exchange: ForwardedExchange,
  requested: Requested,
  upstream: ServiceResponse,
): Promise<void> | void {
  const { response, request } = upstream;
  const status = response.statusCode as number;
  const { encrypted, terminal } = exchange.match.endpoint;
  const streaming = terminal !== undefined && requested.asked.streaming; // other endpoints have no `stream`
  if (status >= 400) {
    const keyFrom = status === 401 ? keyOriginOf(exchange) : undefined;
    const level = status >= 500 ? 'error' : 'warn';
    exchange.log(level, { status, keyFrom }, 'The service answered with an error status');
  }
  const kind = responseKind(status, response.headers, encrypted, streaming);
  if (kind instanceof PrivatemodeError) {
    request.destroy();
    if (kind instanceof ForeignError) return respondForeign(exchange, upstream, kind);
    throw kind;
  }
  if (kind === 'plain') return respondPlain(exchange, upstream);
  if (kind === 'encrypted-body') return respondBody(exchange, requested, upstream);
  const headers = headersOf(exchange, upstream, { contentType: 'text/event-stream', authenticated: true });
  return respondStream(exchange, requested, { response, headers });
}

/**
 * Gives the application a response that nothing authenticates: an error or a list of models. It is marked, so
 * that no stranger's text passes for ours.
 */
async function respondPlain(exchange: ForwardedExchange, upstream: ServiceResponse): Promise<void> {
  const { deps, match } = exchange;
  const { response, errorBody } = upstream;
  const status = response.statusCode as number;
  const text = errorBody ?? (await readWhole(exchange, response, LONGEST_PLAIN));
  if (status >= 400) refuseIfOurs(exchange, upstream, text);
  const isList = deps.aliases !== undefined && status === 200 && isFirstList(match);
  const body = (isList && listWithAliases(deps.aliases, text)) || text;
  const contentType = plainContentType(response.headers['content-type']);
  giveWhole(exchange, upstream, { contentType, authenticated: false, body });
}

/** Whether the response is a list of models that continues no other one: the first one has the aliases. */
const isFirstList = ({ endpoint, target }: ForwardedExchange['match']): boolean =>
  endpoint.id === 'models' && !/[?&](?:after|after_id|before_id)=/.test(target);

/**
 * Throws the error that replaces one of the service which nothing authenticates: client_too_old if its text
 * asks for a newer client, api_key_rejected for a 401 to a key of the operator.
 */
function refuseIfOurs(exchange: Exchange, { response }: ServiceResponse, text: Uint8Array): void {
  const { ownKey } = exchange.attempt as SentAttempt;
  const tooOld = clientTooOld(text, exchange.deps.settings.protocolVersion);
  if (tooOld !== undefined) throw tooOld;
  if (response.statusCode !== 401 || ownKey === undefined) return;
  exchange.deps.ownKeys?.refused(exchange.keyOwner, ownKey);
  throw new PrivatemodeError('api_key_rejected', 'the service rejects the API key');
}

/** Where the key comes from that the request left with: a text for the operator, never the key itself. */
function keyOriginOf(exchange: Exchange): string | undefined {
  const { ownKey, hasKey } = exchange.attempt as SentAttempt;
  if (ownKey === undefined) return hasKey ? 'the request itself' : 'none: the request left without a key';
  return exchange.keyOwner !== undefined
    ? 'the entry of the client in the file of --clients'
    : exchange.deps.key.origin?.();
}

/**
 * Gives the application a whole JSON response. The application sees nothing of it before all of it is
 * authentic. An error that cannot be decrypted keeps its status. If it did not arrive completely, the reason
 * for that is the error.
 */
async function respondBody(
  exchange: ForwardedExchange,
  { asked, translator }: Requested,
  upstream: ServiceResponse,
): Promise<void> {
  const { match, stats } = exchange;
  const { response, errorBody } = upstream;
  const cipher = exchange.attempt?.cipher as RequestCipher;
  const status = response.statusCode as number;
  const isError = status >= 400;
  const sealed = errorBody ?? (await readWhole(exchange, response, MAX_BODY_BYTES));
  let opened: Awaited<ReturnType<typeof decryptBody>>;
  try {
    const opening = decryptBody(match.endpoint, cipher, isError ? undefined : asked, sealed);
    opened = opening instanceof Promise ? await opening : opening;
  } catch (thrown) {
    const failure = asPrivatemodeError(thrown);
    if (!isError) throw failure;
    return respondForeign(exchange, upstream, new ForeignError(failure, status, cipher.hasOpened()), sealed);
  }
  let body: Buffer = opened.body;
  stats.usage = opened.usage;
  if (isError) body = overflowBody(body, status, exchange.format) ?? body;
  else if (translator !== undefined) {
    body = translator.body(body);
    exchange.responseRoom.grow(body.length);
  }
  giveWhole(exchange, upstream, { contentType: 'application/json', authenticated: true, body });
  exchange.authentic();
}

/**
 * Gives the application an error in place of one that is neither marked as plain nor decrypted: its status,
 * Retry-After and rate limits. `text`: what is known of its text, which the application does not get. Throws
 * the error that replaces it (refuseIfOurs).
 */
function respondForeign(
  exchange: ForwardedExchange,
  upstream: ServiceResponse,
  foreign: ForeignError,
  text: Uint8Array = Buffer.alloc(0),
): void {
  const { response } = upstream;
  const status = response.statusCode as number;
  if (!foreign.opened) refuseIfOurs(exchange, upstream, text);
  exchange.failed(foreign, status);
  respondError(exchange, foreign, { status, headers: remoteHeaders(response.headers, false) });
  exchange.done(status);
}

function giveWhole(
  exchange: ForwardedExchange,
  upstream: ServiceResponse,
  given: { readonly contentType: string; readonly authenticated: boolean; readonly body: Buffer },
): void {
  const { body } = given;
  const status = upstream.response.statusCode as number;
  exchange.decrypted(body.length);
  respondWhole(exchange, { status, headers: headersOf(exchange, upstream, given), body });
  exchange.done(status);
}

/** The headers of the response to the application. `authenticated`: whether its body is. */
const headersOf = (
  { match, format, requestId, headers: own, attempt }: ForwardedExchange,
  { response: { headers } }: ServiceResponse,
  { contentType, authenticated }: { readonly contentType: string; readonly authenticated: boolean },
): Record<string, string | string[]> =>
  responseHeaders({
    format,
    requestId,
    headers,
    contentType,
    own,
    encrypted: match.endpoint.encrypted,
    epoch: authenticated ? attempt?.epoch : undefined,
  });
