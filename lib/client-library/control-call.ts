/** Sends a client's requests for evidence, secrets, manifest and certificates, each by the given fetch. */
import { PrivatemodeError } from '../errors.ts';
import { type ControlCall, limitedControlCall } from '../network/call-limits.ts';
import { toApplication, unreachable } from './errors.ts';
import type { ClientConfig } from './read-options.ts';

/** Errors about hosts that had never responded, and that could not be reached or were not trusted. */
const unheard = new WeakSet<Error>();
const NO_ANSWER = /^(?:upstream_unreachable|upstream_tls_untrusted|response_malformed)$/; // the last: no HTTP

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
      if (NO_ANSWER.test(error.code) && !answered.has(host)) unheard.add(error);
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
