/** The head towards the application: what the remote may say in it, and what is ours. */
import type { IncomingMessage } from 'node:http';
import { INERT_HEADERS, requestIdHeader } from '../api/error-format.ts';
import { allowedHeaders } from '../pipeline/rewrite-auth.ts';
import type { Epoch } from '../session/session.ts';
import { receiptHeaders } from '../transparency/receipt.ts';
import type { Exchange } from './exchange.ts';

/**
 * The remote's headers that reach the application: when to try again, what is left of a quota, and ids to ask its
 * operators about. They are not authenticated, so nothing here may steer a browser or a program elsewhere.
 */
const FROM_REMOTE = new Set(['retry-after', 'x-request-id', 'request-id', 'cache-control', 'date']);
const FROM_REMOTE_PREFIXES = ['x-ratelimit-', 'anthropic-ratelimit-'];

/** Those headers by lower-case name; repeated ones as arrays. */
export const remoteHeaders = (rawHeaders: readonly string[]): Record<string, string | string[]> =>
  allowedHeaders(
    rawHeaders,
    (name) => FROM_REMOTE.has(name) || FROM_REMOTE_PREFIXES.some((prefix) => name.startsWith(prefix)),
    (before, value) => [before, value].flat(),
  );

const CONTENT_TYPES = { json: 'application/json', events: 'text/event-stream' } as const;

/**
 * The head towards the application. The type and the marks are ours; of the remote's headers come those of the allow-list. Text
 * that nothing authenticates is marked, errors and the list of models alike, so that nothing of a stranger's passes for ours.
 */
export function responseHeaders(
  { requestId, match: { endpoint }, extraHeaders }: Exchange,
  { rawHeaders, headers }: Pick<IncomingMessage, 'rawHeaders' | 'headers'>,
  epoch: Epoch,
  body: 'json' | 'events' | 'plain',
): Record<string, string | string[]> {
  return {
    ...requestIdHeader({ format: endpoint.errorFormat, requestId }),
    ...remoteHeaders(rawHeaders), // an id of the service wins over ours, one of the application over both
    ...INERT_HEADERS,
    'content-type': body === 'plain' ? plainContentType(headers['content-type']) : CONTENT_TYPES[body],
    ...extraHeaders,
    ...(body === 'plain'
      ? {
          'privatemode-proxy-unauthenticated': 'true',
          ...(endpoint.encrypted ? { 'privatemode-encrypted': 'false' } : {}),
        }
      : receiptHeaders(epoch, requestId)),
  };
}

/**
 * Our own content type for a body that the service sent in clear, from the type it declares: JSON, or text that no browser
 * renders and no client reads as events.
 */
export function plainContentType(declared: string | undefined): string {
  const type = declared?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return /^application\/(?:[\w.-]+\+)?json$/.test(type) ? 'application/json' : 'text/plain; charset=utf-8';
}
