/** How an error reaches a client: its status, headers, and body or event in each API style. */
import { ERRORS, type PrivatemodeError } from '../errors.ts';

/** The API style. `responses` is like `openai`, but only errors in a stream that has begun are events. */
export type ErrorFormat = 'openai' | 'responses' | 'anthropic' | 'plain';

/** Headers of every response: no browser guesses another type for the body, or runs anything in it. */
export const INERT_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': 'sandbox',
} as const;

/** Error types by status, as OpenAI and Anthropic name them. */
const TYPES: Readonly<Record<number, readonly [openai: string, anthropic: string]>> = {
  401: ['authentication_error', 'authentication_error'],
  403: ['permission_error', 'permission_error'],
  404: ['invalid_request_error', 'not_found_error'],
  413: ['invalid_request_error', 'request_too_large'],
  429: ['rate_limit_error', 'rate_limit_error'],
  503: ['server_error', 'overloaded_error'],
  504: ['server_error', 'timeout_error'],
};
const ANY_4XX = ['invalid_request_error', 'invalid_request_error'] as const;
const ANY_5XX = ['server_error', 'api_error'] as const;
// The type of a 400 that is not the client's fault. After any other type, Claude Code repeats the request
// with fewer beta features.
const REFUSED = ['invalid_request_error', 'policy_blocked'] as const;

export interface ErrorContext {
  readonly format: ErrorFormat;
  readonly requestId: string;
  readonly accept?: string | undefined;
  /** The status that the service sent with an error, which replaces the status of the proxy's own error. */
  readonly status?: number | undefined;
  readonly allow?: readonly string[] | undefined; // the methods of the path; only with method_not_allowed
}

/** A whole response that reports one error. The lower-case headers include content-length. */
export function errorResponse(error: PrivatemodeError, context: ErrorContext) {
  const [contentType, text] = shown(error, context);
  const body = Buffer.from(text);
  const headers: Record<string, string> = {
    'content-type': contentType,
    'content-length': String(body.length),
    'cache-control': 'no-store',
    'privatemode-encrypted': 'false', // as in the reference proxy (docs/protocol/inference.md 11)
    'privatemode-proxy-error': error.code, // errors of the service lack the header (docs/architecture.md D18)
    ...INERT_HEADERS,
    ...requestIdHeader(context),
  };
  const row = ERRORS[error.code];
  const retryAfter = error.retryAfter ?? row.retryAfter;
  if (retryAfter !== undefined) headers['retry-after'] = String(retryAfter);
  if (row.isFinal) headers['x-should-retry'] = 'false';
  if (error.status === 401) headers['www-authenticate'] = 'Bearer';
  // A response with status 426 names the protocol to upgrade to (RFC 9110 15.5.22 and 7.8).
  if (error.status === 426) Object.assign(headers, { upgrade: 'HTTP/1.1', connection: 'Upgrade' });
  if (context.allow !== undefined) headers['allow'] = context.allow.join(', ');
  return { status: context.status ?? error.status, headers, body };
}

function shown(error: PrivatemodeError, context: ErrorContext): [contentType: string, body: string] {
  const { format, accept } = context;
  if (format === 'plain') return ['text/plain; charset=utf-8', `${sentence(error, context)}\n`];
  const json = jsonOf(error, context);
  // `Accept: text/event-stream` gets an event, except in the Responses API (docs/protocol/inference.md 11).
  if (accept !== 'text/event-stream' || format === 'responses') return ['application/json', json];
  return ['text/event-stream', `event: error\ndata: ${json}\n\n`];
}

/** The response to `POST /v1/messages/count_tokens`, marked as an estimate. */
export const estimateResponse = (tokens: number, requestId: string) => ({
  headers: {
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'privatemode-proxy-estimate': 'true',
    'request-id': requestId,
    ...INERT_HEADERS,
  },
  body: JSON.stringify({ input_tokens: tokens }),
});

/** `proxy_<UUIDv7>` or `sdk_<UUIDv7>` (RFC 9562 5.7; docs/protocol/inference.md 2). `now`: ms since 1970. */
export function newRequestId(client: 'proxy' | 'sdk', now: number = Date.now()): string {
  const time = now.toString(16).padStart(12, '0');
  return `${client}_${time.slice(0, 8)}-${time.slice(8)}-7${crypto.randomUUID().slice('xxxxxxxx-xxxx-4'.length)}`;
}

/** The header with the request id, under the name that the SDKs of the format look for. */
export const requestIdHeader = (of: Pick<ErrorContext, 'format' | 'requestId'>): Record<string, string> => ({
  [of.format === 'anthropic' ? 'request-id' : 'x-request-id']: of.requestId,
});

/**
 * The error as one SSE event, for a stream that has begun. The OpenAI SDKs raise on a `data` object with a
 * member `error`, the Anthropic SDKs on `event: error`. No terminal marker follows the event.
 */
export const errorEvent = (error: PrivatemodeError, context: ErrorContext): Buffer =>
  Buffer.from(`${context.format === 'anthropic' ? 'event: error\n' : ''}data: ${jsonOf(error, context)}\n\n`);

function jsonOf(error: PrivatemodeError, context: ErrorContext): string {
  const { code, blame, api } = error;
  const status = context.status ?? error.status;
  const isRefused = context.status === undefined && status === 400 && blame !== 'client';
  const [openai, anthropic] = isRefused ? REFUSED : (TYPES[status] ?? (status < 500 ? ANY_4XX : ANY_5XX));
  const message = sentence(error, context);
  const ofOpenai = { message, type: openai, param: api?.param ?? null, code: api?.code ?? code };
  if (context.format !== 'anthropic') return JSON.stringify({ error: ofOpenai });
  const ofAnthropic = { type: anthropic, message, code };
  return JSON.stringify({ type: 'error', error: ofAnthropic, request_id: context.requestId });
}

/** The error for people: what happened, and what to do. The text never holds user content (lib/errors.ts). */
function sentence({ message, remedy }: PrivatemodeError, { requestId }: ErrorContext): string {
  return `${/[.!?]$/.test(message) ? message : `${message}.`} ${remedy} (request id ${requestId})`;
}
