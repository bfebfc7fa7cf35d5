/** What the head of an upstream response means, and what of it reaches the application. */
import { PROTECTION_HEADERS } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import { allowedHeaders } from '../pipeline/rewrite-auth.ts';

/** Clients read no body of such a success, so an error event in it is lost: an empty stream that looks complete. */
const BODILESS = new Set([204, 205]);

/**
 * How an upstream response is to be read, decided from its head alone (docs/protocol/inference.md 6), or why it is refused.
 * `plain` is shown as it is: an endpoint without encryption, or an error that says of itself that it is unencrypted.
 * `streaming` says whether the request asked for an event stream. Neither the header that marks a body as unencrypted nor the
 * content type is authenticated, and `stream` is plain in the request. So with a success the first is forged, and a response of the
 * other kind is refused: a whole body read as a stream has no events, a stream read as a body has no members, and both look empty.
 * Above 599 a status is refused: some clients raise for 400 to 599 alone, and would take a plain error for a success.
 */
export function responseKind(
  status: number,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  encrypted: boolean,
  streaming: boolean,
): 'encrypted-stream' | 'encrypted-body' | 'plain' | PrivatemodeError {
  if (status >= 300 && status < 400) {
    return new PrivatemodeError('upstream_redirect', `the service answered with a redirect (${status})`);
  }
  if (status < 200 || status > 599 || BODILESS.has(status)) {
    const message = 'the service answered with a status that it does not have';
    return new PrivatemodeError('response_malformed', message);
  }
  const encoding = String(headers['content-encoding'] ?? 'identity');
  if (encoding.toLowerCase() !== 'identity') {
    const message = 'the service compressed an answer although none was asked to be';
    return new PrivatemodeError('response_malformed', message);
  }
  if (!encrypted) return 'plain';
  if (headers[PROTECTION_HEADERS.encrypted.toLowerCase()] === 'false') {
    if (status >= 400) return 'plain';
    const message = 'the service answered a success that is not encrypted';
    return new PrivatemodeError('response_not_encrypted', message);
  }
  const isStream = headers['content-type']?.includes('event-stream') === true;
  if (status < 400 && isStream !== streaming) {
    return new PrivatemodeError('response_malformed', 'the answer is not of the kind that was asked for');
  }
  return isStream ? 'encrypted-stream' : 'encrypted-body';
}

/**
 * The remote's headers that reach the application: when to try again, and what is left of a quota. They are not authenticated, so
 * nothing here may steer a browser or a program elsewhere.
 */
const isHint = (name: string): boolean =>
  name === 'retry-after' || name.startsWith('x-ratelimit-') || name.startsWith('anthropic-ratelimit-');

/** Beside a body that authenticates also ids to ask the service's operators about, its date, and how long it may be kept. */
const OF_THE_ANSWER = new Set(['x-request-id', 'request-id', 'cache-control', 'date']);

/**
 * Those headers by lower-case name; repeated ones as arrays. `authenticated`: whether the body is. Beside one that anybody may have
 * written, an id would pass for that of a real answer, and a date or a rule for caches would keep the forgery.
 */
export const remoteHeaders = (
  rawHeaders: readonly string[],
  { authenticated }: { readonly authenticated: boolean },
): Record<string, string | string[]> =>
  allowedHeaders(
    rawHeaders,
    (name) => isHint(name) || (authenticated && OF_THE_ANSWER.has(name)),
    (before, value) => [before, value].flat(),
  );

/** What a response that nothing authenticates says of itself; nobody is to keep it. `encrypted`: whether its endpoint's are. */
export const plainMarks = (encrypted: boolean): Record<string, string> => ({
  'cache-control': 'no-store',
  'privatemode-proxy-unauthenticated': 'true',
  ...(encrypted ? { [PROTECTION_HEADERS.encrypted.toLowerCase()]: 'false' } : {}),
});

/**
 * Our own content type for a body that the service sent in clear, from the type it declares: JSON, or text that no browser
 * renders and no client reads as events.
 */
export function plainContentType(declared: string | undefined): string {
  const type = declared?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  return /^application\/(?:[\w.-]+\+)?json$/.test(type) ? 'application/json' : 'text/plain; charset=utf-8';
}

/** The parts of an epoch that a response names, so that a person can audit what protected it; the time in ms since 1970. */
export type ReceiptSource = Readonly<Record<'secretId' | 'manifestSha256', string> & { attestedAt: number }>;

export const RECEIPT_HEADERS = {
  secretId: 'Privatemode-Proxy-Secret-Id',
  manifestSha256: 'Privatemode-Proxy-Manifest-Sha256',
  attestedAt: 'Privatemode-Proxy-Attested-At',
  requestId: 'Privatemode-Proxy-Request-Id',
  receipt: 'Privatemode-Proxy-Receipt',
} as const;

/** The names of all receipt headers, for Access-Control-Expose-Headers. */
export const RECEIPT_HEADER_NAMES: readonly string[] = Object.values(RECEIPT_HEADERS);

/**
 * The receipt of one response, as headers by name. `source` is the epoch of the attempt that led to it, not of the first
 * one; the time is RFC 3339 in UTC.
 */
export function receiptHeaders(source: ReceiptSource, requestId: string): Record<string, string> {
  return {
    [RECEIPT_HEADERS.secretId]: source.secretId,
    [RECEIPT_HEADERS.manifestSha256]: source.manifestSha256,
    [RECEIPT_HEADERS.attestedAt]: new Date(source.attestedAt).toISOString(),
    [RECEIPT_HEADERS.requestId]: requestId,
  };
}
