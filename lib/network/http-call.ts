import type { Dispatcher } from 'undici';
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { describeHttp2Only } from './http2-only.ts';
import { describeTlsFailure } from './tls-failure.ts';

/** One HTTPS request on the control path, with its limits. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Bytes of the response's body; one more is an error. */
  readonly maxBytes: number;
  /** ms until the whole response must be here; wall clock. */
  readonly timeout: number;
  readonly signal?: AbortSignal | undefined;
}

export interface HttpResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Uint8Array;
}

export type HttpCall = (request: HttpRequest) => Promise<HttpResponse>;

/**
 * Sends requests over `dispatcher`; resolves with a response of any status but a redirect. Throws upstream_unreachable,
 * upstream_connect_timeout (also for a response that takes too long), upstream_tls_untrusted, upstream_http2_only, upstream_reset,
 * upstream_redirect (credentials follow no redirect), control_api_failed for a response over its limit or in an encoding
 * nobody asked for, and the signal's reason. No message quotes the query or anything that was sent.
 */
export function createHttpCall(dispatcher: Dispatcher): HttpCall {
  return async ({ method, url, headers, body = null, maxBytes, timeout, signal: caller }) => {
    const { origin, host, pathname, search } = new URL(url);
    caller?.throwIfAborted();
    const limit = new AbortController();
    const signal = caller === undefined ? limit.signal : AbortSignal.any([limit.signal, caller]);
    const message = `${host} did not answer within ${timeout / 1000} s`;
    const timer = setTimeout(
      () => limit.abort(new PrivatemodeError('upstream_connect_timeout', message)),
      timeout,
    );
    try {
      const response = await dispatcher.request({
        origin,
        path: pathname + search,
        method,
        headers: { 'accept-encoding': 'identity', ...headers },
        body,
        signal,
        // The wall-clock timer above replaces undici's, which start anew with every byte.
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      refuseUnexpected(host, response);
      const { statusCode: status, headers: received } = response;
      return { status, headers: received, body: await readAll(host, response.body, maxBytes) };
    } catch (thrown) {
      throw transportError(host, signal.aborted ? signal.reason : thrown);
    } finally {
      clearTimeout(timer);
    }
  };
}

/** Throws for redirects and content encodings, after dropping the body. */
function refuseUnexpected(host: string, { statusCode, headers, body }: Dispatcher.ResponseData): void {
  const redirect = statusCode >= 300 && statusCode < 400;
  if (!redirect && (headers['content-encoding'] ?? 'identity') === 'identity') return;
  body.on('error', () => {}).destroy();
  const redirected = `${host} answered with a redirect (status ${statusCode})`;
  if (redirect) throw new PrivatemodeError('upstream_redirect', redirected);
  const encoded = `${host} answered in a content encoding that was not asked for`;
  throw new PrivatemodeError('control_api_failed', encoded);
}

async function readAll(host: string, body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    // Leaving the loop destroys the body, and with it the connection.
    if (size > maxBytes) {
      throw new PrivatemodeError('control_api_failed', `the answer of ${host} exceeds ${maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}

/** What node:tls, undici or another fetch reported before a response, as one of our errors; anything without a code as it is. */
export function transportError(host: string, thrown: unknown): unknown {
  if (thrown instanceof PrivatemodeError) return thrown;
  const refused = describeTlsFailure(thrown, host) ?? describeHttp2Only(thrown, host);
  if (refused !== undefined) return refused;
  const errno = thrown instanceof Error ? (thrown as NodeJS.ErrnoException).code : undefined;
  if (typeof errno !== 'string') return thrown;
  const [code, what] = TRANSPORT[errno] ?? ['upstream_unreachable', `cannot be reached (${errno})`];
  return new PrivatemodeError(code, `${host} ${what}`, { cause: thrown });
}

const TRANSPORT: Readonly<Record<string, readonly [code: ErrorCode, what: string]>> = {
  ECONNREFUSED: ['upstream_unreachable', 'refused the connection'],
  ENOTFOUND: ['upstream_unreachable', 'does not resolve'],
  EAI_AGAIN: ['upstream_unreachable', 'does not resolve now'],
  ERR_SSL_WRONG_VERSION_NUMBER: ['upstream_unreachable', 'does not speak TLS'],
  ERR_SSL_PACKET_LENGTH_TOO_LONG: ['upstream_unreachable', 'does not speak TLS'],
  ECONNRESET: ['upstream_reset', 'closed the connection before it answered'],
  EPIPE: ['upstream_reset', 'closed the connection before it answered'],
  UND_ERR_SOCKET: ['upstream_reset', 'closed the connection before it answered'],
  ETIMEDOUT: ['upstream_connect_timeout', 'could not be connected to in time'],
  UND_ERR_CONNECT_TIMEOUT: ['upstream_connect_timeout', 'could not be connected to in time'],
};
