/** One attempt: sends the encrypted request by the given fetch, and waits for the head of the response. */
import type { EndpointMatch } from '../api/match-endpoint.ts';
import { Deadline } from '../clock.ts';
import { PROTOCOL_VERSION, RequestCipher } from '../envelope/protection.ts';
import { attemptHeaders } from '../http-rules/headers.ts';
import { noResponse, UpstreamFailure, upstreamFailure } from '../network/transport-errors.ts';
import { encryptBody } from '../pipeline/encrypt-body.ts';
import type { SaltedBody } from '../pipeline/inject-salt.ts';
import type { Epoch } from '../session/session.ts';
import { HERE_ONLY } from './control-call.ts';
import { codedCause, runtimeLimit, unreachable } from './errors.ts';
import type { ClientConfig } from './read-options.ts';

const { cache, ...HERE } = HERE_ONLY;

/** One request of the application, and the endpoint that its path means. */
export interface Asked {
  readonly config: ClientConfig;
  readonly request: Request;
  readonly requestId: string;
  readonly match: EndpointMatch;
}

/** What was sent for a request, and the head of the response to it. */
export type FetchAttempt = Awaited<ReturnType<typeof send>> & {
  /** The body as it came, if it had to be read to decide about a retry. */
  errorBody?: Buffer;
};

/** Sends one attempt. Rejects with UpstreamFailure, or with the reason of the request's signal. */
export async function send(asked: Asked, epoch: Epoch, body: SaltedBody | undefined) {
  const { config, request, requestId, match } = asked;
  const { apiKey, apiEndpoint, gpuPolicy, clock, firstByteTimeout } = config;
  const { secretId, key } = epoch;
  const { model, shardKey } = body ?? {};
  const cipher = match.endpoint.codec === 'none' ? undefined : new RequestCipher({ id: secretId, key });
  const encrypted = body && cipher && encryptBody(body, cipher);
  // The body is sent whole, because browsers stream none over HTTP/1.1. Slices are copied: they soon change.
  const content = encrypted && Buffer.concat(Array.from(encrypted.slices, (slice) => Buffer.from(slice)));
  const head = {
    client: 'SDK' as const,
    protocolVersion: PROTOCOL_VERSION,
    host: undefined,
    headers: Object.fromEntries(request.headers),
    requestId,
    authorization: `Bearer ${apiKey}`,
  };
  const protection = cipher && { secretId, key, model, shardKey, gpuPolicy, nowMs: clock.now() };
  const { fetch } = config; // called by itself: the fetch of a browser refuses to be the method of an object
  const control = new AbortController();
  const late = noResponse();
  const deadline = new Deadline(clock).wait(firstByteTimeout, () => control.abort(late));
  try {
    const response = await fetch(new URL(match.target, apiEndpoint), {
      method: request.method,
      headers: attemptHeaders(head, protection, encrypted),
      ...(content && { body: content }),
      signal: AbortSignal.any([control.signal, request.signal]),
      ...HERE,
      // A request with a body omits the option `cache`: no cache keeps the response to a POST, the option
      // would only add headers, and workers of Cloudflare do not know its value 'default'.
      ...(content === undefined && { cache }),
    });
    // The request is held as long as the response: a garbage-collected request would forward no abort.
    return { epoch, cipher, request, response, abort: (): void => control.abort() };
  } catch (thrown) {
    request.signal.throwIfAborted();
    if (control.signal.aborted) throw new UpstreamFailure(late);
    throw failureOf(thrown, config, content?.length ?? 0);
  } finally {
    deadline.cancel();
  }
}

/** The system takes this many bytes at once. A request of this size is sent before its connection fails. */
const AT_ONCE = 64 * 1024;

/** Why no response came, as far as the runtime says. Browsers say nothing about it. */
function failureOf(thrown: unknown, { apiEndpoint: { host }, clock }: ClientConfig, size: number) {
  const limit = runtimeLimit(thrown);
  const cause = codedCause(thrown);
  if (limit !== undefined || cause === undefined)
    return new UpstreamFailure(limit ?? unreachable(host, thrown));
  const sent = size <= AT_ONCE;
  return upstreamFailure(cause, { host, heard: false, reused: false, age: 0, sent, times: clock.times });
}
