/** The control path of a client: one HTTPS request by the given fetch, with its limits. */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { type HttpCall, limitedCall, transportError } from '../network/http-call.ts';
import type { Fetch } from './options.ts';
import { toApplication } from './remedies.ts';

/** Errors of hosts that could not be reached or are not trusted, and had never answered before. */
const nobody = new WeakSet<Error>();
const NO_ANSWER: ReadonlySet<ErrorCode> = new Set(['upstream_unreachable', 'upstream_tls_untrusted']);

/**
 * Whether this error, or what led to it, is of a host that has never answered this client and cannot be reached, or whose certificate is not
 * trusted: likelier a wrong address, a missing CA or no network at all, than an outage that passes.
 */
export const isNobody = (thrown: unknown): boolean =>
  thrown instanceof Error && (nobody.has(thrown) || isNobody(thrown.cause));

/**
 * Resolves with a response of any status but a redirect. Throws as createHttpCall does, as far as the runtime says what happened:
 * a browser says nothing, which is upstream_unreachable.
 */
export function createFetchCall(fetch: Fetch): HttpCall {
  const answered = new Set<string>();
  return limitedCall(
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
      // What it led to may quote the remedy.
      const error = toApplication(thrown instanceof PrivatemodeError ? thrown : unreachable(host, thrown));
      if (NO_ANSWER.has(error.code) && !answered.has(host)) nobody.add(error);
      return error;
    },
  );
}

/** The chunks of a body; not every runtime can iterate it. Whoever leaves early ends the connection. */
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

/** For every request: no redirect takes a key elsewhere, no cookie or cache tells who asks, no page is named. */
export const HERE_ONLY = {
  redirect: 'manual',
  credentials: 'omit',
  cache: 'no-store',
  referrerPolicy: 'no-referrer',
} as const;

/** A browser shows a redirect that is not followed as a response of status 0. */
export const isRedirect = ({ status, type }: Response): boolean =>
  type === 'opaqueredirect' || (status >= 300 && status < 400);

/** What a fetch that gave no response says of it, else upstream_unreachable; a page is not told why, so there it says what else the reason can be. */
export function unreachable(host: string, cause: unknown): PrivatemodeError {
  const { cause: below = cause } = (cause ?? {}) as { readonly cause?: unknown };
  const told = transportError(host, below);
  if (told instanceof PrivatemodeError) return told;
  // Windows and workers of browsers have one.
  const { origin } = (globalThis as { readonly location?: { readonly origin: string } }).location ?? {};
  if (origin === undefined)
    return new PrivatemodeError('upstream_unreachable', `${host} cannot be reached`, { cause });
  const message = `${host} cannot be reached, or does not allow pages of ${origin} to ask it (CORS)`;
  const remedy = `Check the network, and in the browser's console whether CORS is the reason; "Runtimes" in the README of privatemode-ai says what to do then.`;
  return new PrivatemodeError('upstream_unreachable', message, { cause, remedy });
}
