import { type Dispatcher, request } from 'undici';
import { PrivatemodeError } from '../errors.ts';
import { describeTlsFailure } from './tls-failure.ts';

/** One call on the control path, with its limits. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST';
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Bytes of the answer's body; one more is an error. */
  readonly maxBytes: number;
  /** ms until the whole answer must be here; wall clock. */
  readonly timeout: number;
  readonly signal?: AbortSignal | undefined;
}

export interface HttpAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Uint8Array;
}

export type HttpCall = (call: HttpRequest) => Promise<HttpAnswer>;

/**
 * Calls over `dispatcher`, any status but a redirect being an answer. Throws upstream_unreachable,
 * upstream_connect_timeout (also for an answer that takes too long), upstream_tls_untrusted, upstream_reset,
 * upstream_redirect (inference.md 1: credentials follow no redirect), control_api_failed for an answer over its limit
 * or in an encoding nobody asked for, and the signal's reason. No message quotes the query or anything that was sent.
 */
export function createHttpCall(dispatcher: Dispatcher): HttpCall {
  return async (call) => {
    const { host } = new URL(call.url);
    const abort = new AbortController();
    const cancelled = (): void => abort.abort(call.signal?.reason);
    call.signal?.throwIfAborted();
    call.signal?.addEventListener('abort', cancelled, { once: true });
    const late = new PrivatemodeError(
      'upstream_connect_timeout',
      `${host} did not answer within ${call.timeout / 1000} s`,
    );
    const timer = setTimeout(() => abort.abort(late), call.timeout);
    try {
      const response = await request(call.url, {
        dispatcher,
        method: call.method,
        headers: { 'accept-encoding': 'identity', ...call.headers },
        body: call.body ?? null,
        signal: abort.signal,
        // The wall-clock timer above replaces undici's, which start anew with every byte.
        headersTimeout: 0,
        bodyTimeout: 0,
      });
      refuseRedirect(host, response);
      return {
        status: response.statusCode,
        headers: response.headers,
        body: await readAll(host, response, call.maxBytes),
      };
    } catch (thrown) {
      throw transportError(host, abort.signal.aborted ? abort.signal.reason : thrown);
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener('abort', cancelled);
    }
  };
}

function refuseRedirect(host: string, response: Dispatcher.ResponseData): void {
  const encoding = response.headers['content-encoding'] ?? 'identity';
  const redirect = response.statusCode >= 300 && response.statusCode < 400;
  if (!redirect && encoding === 'identity') return;
  response.body.on('error', () => {}).destroy();
  throw redirect
    ? new PrivatemodeError(
        'upstream_redirect',
        `${host} answered with a redirect (status ${response.statusCode})`,
      )
    : new PrivatemodeError(
        'control_api_failed',
        `${host} answered in a content encoding that was not asked for`,
      );
}

async function readAll(
  host: string,
  response: Dispatcher.ResponseData,
  maxBytes: number,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    // Leaving the loop destroys the body, and with it the connection.
    if (size > maxBytes) {
      throw new PrivatemodeError('control_api_failed', `the answer of ${host} exceeds ${maxBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return new Uint8Array(Buffer.concat(chunks));
}

function transportError(host: string, thrown: unknown): unknown {
  if (thrown instanceof PrivatemodeError) return thrown;
  const tls = describeTlsFailure(thrown, host);
  if (tls !== undefined) return tls;
  const code = codeOf(thrown);
  if (code === undefined) return thrown;
  const [ours, words] = TRANSPORT[code] ?? ['upstream_unreachable', `cannot be reached (${code})`];
  return new PrivatemodeError(ours, `${host} ${words}`, { cause: thrown });
}

const TRANSPORT: Readonly<
  Record<string, readonly ['upstream_reset' | 'upstream_connect_timeout' | 'upstream_unreachable', string]>
> = {
  ECONNREFUSED: ['upstream_unreachable', 'refused the connection'],
  ENOTFOUND: ['upstream_unreachable', 'does not resolve'],
  EAI_AGAIN: ['upstream_unreachable', 'does not resolve now'],
  ECONNRESET: ['upstream_reset', 'closed the connection before it answered'],
  EPIPE: ['upstream_reset', 'closed the connection before it answered'],
  UND_ERR_SOCKET: ['upstream_reset', 'closed the connection before it answered'],
  ETIMEDOUT: ['upstream_connect_timeout', 'could not be connected to in time'],
  UND_ERR_CONNECT_TIMEOUT: ['upstream_connect_timeout', 'could not be connected to in time'],
};

function codeOf(thrown: unknown): string | undefined {
  const code = thrown instanceof Error ? (thrown as NodeJS.ErrnoException).code : undefined;
  return typeof code === 'string' ? code : undefined;
}
