/** Enforces the limits of each request on the control path, and the pauses that hosts ask for. */
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Times } from '../times.ts';

export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly maxBytes: number; // the most bytes of a response body; a longer body is an error
  readonly timeout: number; // milliseconds until the whole response must have arrived
  readonly signal?: AbortSignal | undefined;
}
type Chunks = AsyncIterable<Uint8Array>;

export interface HttpResponse<Body = Uint8Array> {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>; // names in lower case
  readonly body: Body;
  readonly pause?: number | undefined; // seconds that the host wants to pass before a request of this kind
}

export type ControlCall = (request: HttpRequest) => Promise<HttpResponse>;

/** The pause in seconds that a response wants, plus up to a fifth to spread machines behind one address. */
export function pauseOf({ status, headers }: HttpResponse, times: Times, random = Math.random()) {
  const text = headers['retry-after'];
  if (status !== 429 && !(status === 503 && text !== undefined)) return undefined;
  const seconds = /^\d+$/.test(String(text)) ? Number(text) : times.usualPause / 1000; // no seconds are named
  return Math.min(Math.max(seconds, 1), times.longestPause / 1000) * (1 + random / 5);
}

/**
 * Returns a function that sends requests by `send`, each within its limits. While a host wants a pause,
 * nothing is sent, and the response that asked for the pause is returned again. A pause is obeyed for at most
 * `confirmAfter` (lib/times.ts), because anybody on the network can ask for longer, and requests of
 * applications may wait. Throws upstream_connect_timeout, control_api_failed for a body over `maxBytes`, the
 * reason of the signal, and for any other failure what `failureOf` returns.
 */
export function limitedControlCall(
  send: (request: HttpRequest, host: string, signal: AbortSignal) => Promise<HttpResponse<Chunks>>,
  failureOf: (host: string, thrown: unknown) => unknown,
  clock: Clock,
): ControlCall {
  const paused = new Map<
    string,
    { readonly until: number; readonly heldUntil: number; readonly response: HttpResponse }
  >();
  return async (request) => {
    const { method, url, headers, maxBytes, timeout, signal: caller } = request;
    const { host, origin, pathname } = new URL(url);
    caller?.throwIfAborted();
    // A host may limit each path and key by itself. The query is left out: it differs for each manifest.
    const limited = `${method} ${origin}${pathname} ${headers?.['authorization']}`;
    const now = clock.monotonic();
    for (const [each, { until }] of paused) if (until <= now) paused.delete(each);
    const known = paused.get(limited);
    if (known !== undefined && now < known.heldUntil)
      return { ...known.response, pause: (known.until - now) / 1000 };

    const limit = new AbortController();
    const signal = caller === undefined ? limit.signal : AbortSignal.any([limit.signal, caller]);
    const message = `${host} did not answer within ${timeout / 1000} s`;
    const late = (): void => limit.abort(new PrivatemodeError('upstream_connect_timeout', message));
    const cancel = clock.after(timeout, late, 'waiting');
    try {
      const { body, ...head } = await send(request, host, signal);
      const whole = await readAll(body, maxBytes);
      if (whole === undefined)
        throw new PrivatemodeError('control_api_failed', `the answer of ${host} exceeds ${maxBytes} bytes`);
      const response = { ...head, body: new Uint8Array(whole) };
      const pause = pauseOf(response, clock.times);
      if (pause === undefined) return response;
      const answered = clock.monotonic();
      const heldUntil = answered + Math.min(pause * 1000, clock.times.confirmAfter);
      paused.set(limited, { until: answered + pause * 1000, heldUntil, response });
      return { ...response, pause };
    } catch (thrown) {
      throw signal.aborted ? signal.reason : failureOf(host, thrown);
    } finally {
      cancel();
    }
  };
}

/** Returns all bytes of a body, or stops reading and returns undefined at more than `most` bytes. */
export async function readAll(body: Chunks, most: number): Promise<Buffer | undefined> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > most) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
