/** One HTTPS request on the control path, with its limits, and its failures as our errors. */
import type { Dispatcher } from 'undici';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';
import { transportError } from './failures.ts';

export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Bytes of the response's body; one more is an error. */
  readonly maxBytes: number;
  /** ms until the whole response must be here. */
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

export type ControlCall = (request: HttpRequest) => Promise<HttpResponse>;

/**
 * The pause that a response asks for, in seconds. `random`: from 0 to 1. It makes the pause up to a fifth
 * longer, because a host counts the requests of all machines behind one address together.
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
    const { method, url, headers, maxBytes, timeout, signal: caller } = request;
    const { host, origin, pathname } = new URL(url);
    caller?.throwIfAborted();
    // A host may limit each path, and each key, by itself. The query of the manifest always differs.
    const limited = `${method} ${origin}${pathname} ${headers?.['authorization']}`;
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
        // The timer of limitedControlCall replaces undici's, which start anew with every byte.
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      const { statusCode: status, headers: answered, body: bytes } = response;
      const redirect = status >= 300 && status < 400;
      if (!redirect && (answered['content-encoding'] ?? 'identity') === 'identity')
        return { status, headers: answered, body: bytes };
      bytes.on('error', () => {}).destroy();
      throw redirect
        ? new PrivatemodeError('upstream_redirect', `${host} answered with a redirect (status ${status})`)
        : new PrivatemodeError('control_api_failed', `${host} answered in an encoding nobody asked for`);
    },
    transportError,
    clock,
  );

async function readAll(host: string, body: AsyncIterable<Uint8Array>, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    // Leaving the loop destroys the body, and with it the connection.
    if (size > maxBytes)
      throw new PrivatemodeError('control_api_failed', `the answer of ${host} exceeds ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}
