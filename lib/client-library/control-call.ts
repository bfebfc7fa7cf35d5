/** Sends a client's requests for evidence, secrets, manifest and certificates, each by the given fetch. */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { type ControlCall, limitedControlCall } from '../network/call-limits.ts';
import { transportError } from '../network/transport-errors.ts';
import type { ClientConfig } from './read-options.ts';
import { toApplication } from './remedies.ts';

/** Errors about hosts that had never responded, and that could not be reached or were not trusted. */
const unheard = new WeakSet<Error>();
const NO_ANSWER: ReadonlySet<ErrorCode> = new Set(['upstream_unreachable', 'upstream_tls_untrusted']);

/**
 * Whether an error is about a host that has never responded to this client. The error's causes count, too.
 * For a host that never responded, a wrong address, a missing CA or no network is likelier than an outage.
 */
export const isUnheard = (thrown: unknown): boolean =>
  thrown instanceof Error && (unheard.has(thrown) || isUnheard(thrown.cause));

/**
 * Returns a function that sends one control request, and resolves with a response of any status but a
 * redirect. Throws upstream_redirect for a redirect, and otherwise the errors of limitedControlCall. In a
 * browser, which hides why a request failed, the function throws upstream_unreachable for every failure.
 */
export function createControlCall({ fetch, clock }: Pick<ClientConfig, 'fetch' | 'clock'>): ControlCall {
  const answered = new Set<string>();
  return limitedControlCall(
    async ({ method, url, headers, body = null }, host, signal) => {
      const response = await fetch(url, { method, headers: headers ?? {}, body, signal, ...HERE_ONLY });
      answered.add(host);
      if (isRedirect(response))
        throw new PrivatemodeError('upstream_redirect', `${host} answered with a redirect`);
      const { status } = response;
      return { status, headers: Object.fromEntries(response.headers), body: chunksOf(response) };
    },
    (host, thrown) => {
      // Later errors may quote the remedy of their cause, so this error gets the remedy for applications now.
      const error = toApplication(thrown instanceof PrivatemodeError ? thrown : unreachable(host, thrown));
      if (NO_ANSWER.has(error.code) && !answered.has(host)) unheard.add(error);
      return error;
    },
    clock,
  );
}

/** Yields chunks of a body by a reader: not every runtime iterates a body. Stopping cancels the body. */
async function* chunksOf({ body }: Response): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  try {
    for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) yield read.value;
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

/** Finds the error whose code says why a fetch failed: the thrown error's cause, or the thrown error. */
export function codedCause(thrown: unknown): NodeJS.ErrnoException | undefined {
  const error = thrown instanceof Error ? ((thrown.cause ?? thrown) as NodeJS.ErrnoException) : undefined;
  return typeof error?.code === 'string' ? error : undefined;
}

/** Codes of waits that undici ends by itself, whatever our options say. Undici is the fetch of Node. */
const RUNTIME_LIMITS = new Map<unknown, ErrorCode>([
  ['UND_ERR_HEADERS_TIMEOUT', 'first_byte_timeout'],
  ['UND_ERR_BODY_TIMEOUT', 'stream_idle_timeout'],
]);

/** The error for a wait that the runtime ended. Undefined if the runtime ended no wait. */
export function runtimeLimit(thrown: unknown): PrivatemodeError | undefined {
  const code = RUNTIME_LIMITS.get(codedCause(thrown)?.code);
  const remedy =
    'Set the option fetch to one that waits longer, as "Runtimes" in the README of privatemode-ai shows.';
  return code && new PrivatemodeError(code, 'the runtime stopped waiting', { cause: thrown, remedy });
}

/**
 * The error for a fetch that gave no response: what the runtime says about it, else upstream_unreachable. A
 * browser does not tell a page why a fetch failed, so the message also names CORS in browsers.
 */
export function unreachable(host: string, cause: unknown): PrivatemodeError {
  const known = transportError(host, codedCause(cause) ?? cause);
  if (known instanceof PrivatemodeError) return known;
  const { location: page } = globalThis as { readonly location?: { readonly origin: string } };
  const cors = page && `, or does not allow pages of ${page.origin} to ask it (CORS)`;
  const remedy =
    page &&
    'Check the network, and in the console of the browser whether CORS is the reason; "Runtimes" in the README of privatemode-ai says what to do then.';
  const message = `${host} cannot be reached${cors ?? ''}`;
  return new PrivatemodeError('upstream_unreachable', message, { cause, remedy });
}
