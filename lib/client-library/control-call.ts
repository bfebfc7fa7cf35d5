/**
 * Sends a client's requests for evidence, secrets, manifest and certificates: each is one HTTPS request by
 * the given fetch, within limits.
 */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { type ControlCall, limitedControlCall } from '../network/control-call.ts';
import { transportError } from '../network/failures.ts';
import type { ClientConfig } from './options.ts';
import { toApplication } from './remedies.ts';

/** Errors about hosts that cannot be reached or are not trusted, and that had never responded before. */
const nobody = new WeakSet<Error>();
const NO_ANSWER: ReadonlySet<ErrorCode> = new Set(['upstream_unreachable', 'upstream_tls_untrusted']);

/**
 * Whether this error, or one of its causes, is about a host that cannot be reached or whose certificate is
 * not trusted, and that has never responded to this client. The reason is more likely a wrong address, a
 * missing CA or no network at all than an outage that passes.
 */
export const isNobody = (thrown: unknown): boolean =>
  thrown instanceof Error && (nobody.has(thrown) || isNobody(thrown.cause));

/**
 * Makes a function that sends one control request and resolves with a response of any status but a redirect.
 * It throws as that of createControlCall does, as far as the runtime says what happened. A browser says
 * nothing: the function then throws upstream_unreachable.
 */
export function createControlCall({ fetch, clock }: Pick<ClientConfig, 'fetch' | 'clock'>): ControlCall {
  const answered = new Set<string>();
  return limitedControlCall(
    async ({ method, url, headers, body }, host, signal) => {
      const response = await fetch(url, {
        method,
        ...(headers && { headers }),
        ...(body !== undefined && { body }),
        signal,
        ...HERE_ONLY,
      });
      answered.add(host);
      if (isRedirect(response)) {
        throw new PrivatemodeError('upstream_redirect', `${host} answered with a redirect`);
      }
      const { status } = response;
      return { status, headers: Object.fromEntries(response.headers), body: chunksOf(response) };
    },
    (host, thrown) => {
      // An error that this one causes may quote its remedy, so the remedy is put in here.
      const error = toApplication(thrown instanceof PrivatemodeError ? thrown : unreachable(host, thrown));
      if (NO_ANSWER.has(error.code) && !answered.has(host)) nobody.add(error);
      return error;
    },
    clock,
  );
}

/**
 * Yields the chunks of a body. It uses a reader, because not every runtime can iterate a body. If the
 * consumer stops early, the connection ends.
 */
async function* chunksOf({ body }: Response): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  try {
    for (;;) {
      const read = await reader?.read();
      if (read === undefined || read.done) return;
      yield read.value;
    }
  } finally {
    await reader?.cancel().catch(() => {});
  }
}

/**
 * Options of fetch for every request: no redirect takes a key elsewhere, no cookie or cache tells who asks,
 * and no referrer names a page.
 */
export const HERE_ONLY = {
  redirect: 'manual',
  credentials: 'omit',
  cache: 'no-store',
  referrerPolicy: 'no-referrer',
} as const;

/** Whether a response is a redirect. A browser shows an unfollowed redirect as a response of status 0. */
export const isRedirect = ({ status, type }: Response): boolean =>
  type === 'opaqueredirect' || (status >= 300 && status < 400);

/** The origin of the page that runs this; undefined outside of browsers. Windows and workers have one. */
export const pageOrigin = (): string | undefined =>
  (globalThis as { readonly location?: { readonly origin: string } }).location?.origin;

/** What the runtime says about a fetch that failed: the cause of its error, where it has one. */
export const causeOf = (thrown: unknown): unknown =>
  ((thrown ?? {}) as { readonly cause?: unknown }).cause ?? thrown;

/** Waits that undici, which is the fetch of Node, ends by itself, whatever our options say. */
const RUNTIME_LIMITS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  UND_ERR_HEADERS_TIMEOUT: [
    'first_byte_timeout',
    'the answer had not begun when the runtime stopped waiting',
  ],
  UND_ERR_BODY_TIMEOUT: [
    'stream_idle_timeout',
    'the answer paused until the runtime stopped waiting for more',
  ],
};

/** The error for a wait that the runtime ended; undefined if it ended none. */
export function runtimeLimit(thrown: unknown): PrivatemodeError | undefined {
  const { code } = (causeOf(thrown) ?? {}) as { readonly code?: unknown };
  const known = Object.hasOwn(RUNTIME_LIMITS, String(code)) ? RUNTIME_LIMITS[String(code)] : undefined;
  if (known === undefined) return undefined;
  const remedy =
    'Set the option fetch to one that waits longer, as "Runtimes" in the README of privatemode-ai shows.';
  return new PrivatemodeError(...known, { cause: thrown, remedy });
}

/**
 * The error for a fetch that gave no response: what the runtime says about it, else upstream_unreachable. A
 * browser does not tell a page why, so there the message also names CORS, the other possible reason.
 */
export function unreachable(host: string, cause: unknown): PrivatemodeError {
  const known = transportError(host, causeOf(cause));
  if (known instanceof PrivatemodeError) return known;
  const origin = pageOrigin();
  if (origin === undefined)
    return new PrivatemodeError('upstream_unreachable', `${host} cannot be reached`, { cause });
  const message = `${host} cannot be reached, or does not allow pages of ${origin} to ask it (CORS)`;
  const remedy = `Check the network, and in the browser's console whether CORS is the reason; "Runtimes" in the README of privatemode-ai says what to do then.`;
  return new PrivatemodeError('upstream_unreachable', message, { cause, remedy });
}
