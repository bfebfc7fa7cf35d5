/**
 * Makes one attempt: sends the encrypted request by the given fetch, and waits for the head of the response.
 */
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { Deadline } from '../clock.ts';
import { PROTOCOL_VERSION, type RequestCipher } from '../envelope/protection.ts';
import { attemptHeaders } from '../http-rules/headers.ts';
import { noResponse, UpstreamFailure, upstreamFailure } from '../network/failures.ts';
import { encryptBody } from '../pipeline/encrypt-body.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import type { Epoch } from '../session/session.ts';
import { causeOf, HERE_ONLY, runtimeLimit, unreachable } from './control-call.ts';
import type { ClientConfig } from './options.ts';

const { cache, ...HERE } = HERE_ONLY;

export interface OutgoingFetch {
  readonly match: EndpointMatch;
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  readonly body: SaltedBody | undefined;
  readonly requestId: string;
}

/** An attempt that got the head of a response. */
export interface FetchAttempt {
  readonly epoch: Epoch;
  readonly cipher: RequestCipher | undefined;
  /**
   * The application's request. It is held for as long as the response, because a Request that was
   * garbage-collected forwards no abort.
   */
  readonly request: Request;
  readonly response: Response;
  /** Ends the connection of the response. */
  readonly abort: () => void;
}

/** Sends one attempt. Rejects with UpstreamFailure, and with the reason of the request's signal. */
export async function send(
  config: ClientConfig,
  request: Request,
  outgoing: OutgoingFetch,
): Promise<FetchAttempt> {
  const { match, epoch, cipher, body, requestId } = outgoing;
  const encrypted = body && cipher && encryptBody(body, cipher);
  const content = encrypted && bytesOf(encrypted);
  const { secretId, key } = epoch;
  const { model, shardKey } = body ?? {};
  const head = {
    client: 'SDK' as const,
    protocolVersion: PROTOCOL_VERSION,
    host: undefined,
    headers: Object.fromEntries(request.headers),
    requestId,
    authorization: `Bearer ${config.apiKey}`,
  };
  const protection = {
    secretId,
    key,
    model,
    shardKey,
    gpuPolicy: config.gpuPolicy,
    nowMs: config.clock.now(),
  };
  const headers = new Headers();
  for (const [name, value] of Object.entries(attemptHeaders(head, cipher && protection, encrypted)))
    headers.set(name, value);
  const { fetch } = config; // called alone: the fetch of a browser refuses to be the method of an object
  const control = new AbortController();
  const late = noResponse();
  const deadline = new Deadline(config.clock).wait(config.firstByteTimeout, () => control.abort(late));
  try {
    const response = await fetch(new URL(match.target, config.apiEndpoint), {
      // Not every server that knows GET knows HEAD. The library drops the body of the response.
      method: request.method === 'HEAD' ? 'GET' : request.method,
      headers,
      ...(content && { body: content }),
      signal: AbortSignal.any([control.signal, request.signal]),
      ...HERE,
      // A request with a body leaves the option out: no cache keeps the response to a POST, the option would
      // only add headers, and workers of Cloudflare do not know the value 'default'.
      ...(content === undefined && { cache }),
    });
    return { epoch, cipher, request, response, abort: (): void => control.abort() };
  } catch (thrown) {
    request.signal.throwIfAborted();
    if (control.signal.aborted) throw new UpstreamFailure(late);
    throw failureOf(thrown, config, content?.length ?? 0);
  } finally {
    deadline.cancel();
  }
}

/**
 * Bytes that the operating system takes at once. A request of at most this size has left before its
 * connection fails.
 */
const AT_ONCE = 64 * 1024;

/** Why no response came, as far as the runtime says; browsers say nothing. */
function failureOf(
  thrown: unknown,
  { apiEndpoint: { host }, clock: { times } }: ClientConfig,
  sentBytes: number,
): UpstreamFailure {
  const limit = runtimeLimit(thrown);
  if (limit !== undefined) return new UpstreamFailure(limit);
  const cause = causeOf(thrown);
  const { code } = (cause ?? {}) as { readonly code?: unknown };
  if (typeof code !== 'string') return new UpstreamFailure(unreachable(host, thrown));
  const isSent = sentBytes <= AT_ONCE;
  return upstreamFailure(cause, { host, heard: false, reused: false, age: 0, sent: isSent, times });
}

/** The whole body as bytes, because browsers send no stream over HTTP/1.1. */
function bytesOf({ contentLength, slices }: ReturnType<typeof encryptBody>): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(contentLength);
  let filled = 0;
  for (const slice of slices) {
    bytes.set(slice, filled);
    filled += slice.length;
  }
  return bytes;
}
