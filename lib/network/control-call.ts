/** One HTTPS request on the control path, with its limits, and its failures as our errors. */
import type { Dispatcher } from 'undici';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';
import { transportError } from './failures.ts';

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
  /** Seconds for which the host wants no such request; undefined if it does not say so. */
  readonly pause?: number | undefined;
}

/**
 * The pause that a response asks for. `random`: from 0 to 1. It makes the pause up to a fifth longer, because
 * a host counts the requests of all machines behind one address together.
 */
export function pauseOf(
  { status, headers }: HttpResponse,
  { usualPause, longestPause }: Pick<Times, 'usualPause' | 'longestPause'>,
  random = Math.random(),
): number | undefined {
  const text = headers['retry-after'];
  if (status !== 429 && !(status === 503 && text !== undefined)) return undefined;
  const seconds = /^\d+$/.test(String(text)) ? Number(text) : usualPause / 1000; // else a date, or missing
  return Math.min(Math.max(seconds, 1), longestPause / 1000) * (1 + random / 5);
}

/**
 * Whom a host asks for a pause: it may limit each path, and each key, by itself. The query does not count,
 * because that of the manifest always differs.
 */
function limitedBy({ method, url, headers }: HttpRequest): string {
  const { origin, pathname } = new URL(url);
  return `${method} ${origin}${pathname} ${headers?.['authorization']}`;
}

export type ControlCall = (request: HttpRequest) => Promise<HttpResponse>;

/**
 * Makes a function that sends requests by `send`, and holds it to the limits of each request. During a pause
 * that a host wants, it resolves with the response that asked for the pause, and sends nothing. If the body
 * is left early, `send` must end its connection. Throws upstream_connect_timeout, control_api_failed for a
 * body over `maxBytes`, the signal's reason, and for any other failure what `failureOf` returns.
 */
export function limitedControlCall(
  send: (
    request: HttpRequest,
    host: string,
    signal: AbortSignal,
  ) => Promise<Omit<HttpResponse, 'body'> & { readonly body: AsyncIterable<Uint8Array> }>,
  failureOf: (host: string, thrown: unknown) => unknown,
  clock: Clock,
): ControlCall {
  const paused = new Map<string, { readonly until: number; readonly response: HttpResponse }>();

  return async (request) => {
    const { url, maxBytes, timeout, signal: caller } = request;
    const { host } = new URL(url);
    caller?.throwIfAborted();
    const limited = limitedBy(request);
    const now = clock.monotonic();
    for (const [each, { until }] of paused) if (until <= now) paused.delete(each);
    const known = paused.get(limited);
    if (known !== undefined) return { ...known.response, pause: (known.until - now) / 1000 };
    const limit = new AbortController();
    const signal = caller === undefined ? limit.signal : AbortSignal.any([limit.signal, caller]);
    const message = `${host} did not answer within ${timeout / 1000} s`;
    const late = (): void => limit.abort(new PrivatemodeError('upstream_connect_timeout', message));
    const cancel = clock.after(timeout, late, 'waiting');
    try {
      const { body, ...head } = await send(request, host, signal);
      const response = { ...head, body: await readAll(host, body, maxBytes) };
      const pause = pauseOf(response, clock.times);
      if (pause === undefined) return response;
      paused.set(limited, { until: clock.monotonic() + pause * 1000, response });
      return { ...response, pause };
    } catch (thrown) {
      throw signal.aborted ? signal.reason : failureOf(host, thrown);
    } finally {
      cancel();
    }
  };
}

/**
 * Sends requests over `dispatcher`; resolves with a response of any status but a redirect. Throws
 * upstream_unreachable, upstream_connect_timeout (also for a response that takes too long),
 * upstream_tls_untrusted, upstream_http2_only, upstream_reset, upstream_redirect (credentials follow no
 * redirect), control_api_failed for a response over its limit or in an encoding nobody asked for, and the
 * signal's reason. No message quotes the query or anything that was sent.
 */
export const createControlCall = (dispatcher: Dispatcher, clock: Clock): ControlCall =>
  limitedControlCall(
    async ({ method, url, headers, body = null }, host, signal) => {
      const { origin, pathname, search } = new URL(url);
      const response = await dispatcher.request({
        origin,
        path: pathname + search,
        method,
        headers: { 'accept-encoding': 'identity', ...headers },
        body,
        signal,
        // The wall-clock timer of limitedControlCall replaces undici's, which start anew with every byte.
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      refuseUnexpected(host, response);
      return { status: response.statusCode, headers: response.headers, body: response.body };
    },
    transportError,
    clock,
  );

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
