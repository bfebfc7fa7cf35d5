import type { ErrorCode, PrivatemodeError } from '../errors.ts';

/** The API style a client speaks, and so the form in which it understands errors. */
export type ErrorFormat = 'openai' | 'anthropic' | 'plain';

/** For every response: a browser neither guesses another type for the body nor runs anything that is in it. */
export const INERT_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': 'sandbox',
} as const;

/** Error types by status, as the makers of the two styles name them; the SDKs choose their classes by status. */
const TYPES: Readonly<Record<number, { readonly openai: string; readonly anthropic: string }>> = {
  401: { openai: 'authentication_error', anthropic: 'authentication_error' },
  403: { openai: 'permission_error', anthropic: 'permission_error' },
  404: { openai: 'invalid_request_error', anthropic: 'not_found_error' },
  413: { openai: 'invalid_request_error', anthropic: 'request_too_large' },
  429: { openai: 'rate_limit_error', anthropic: 'rate_limit_error' },
  503: { openai: 'server_error', anthropic: 'overloaded_error' },
  504: { openai: 'server_error', anthropic: 'timeout_error' },
};
const ANY_4XX = { openai: 'invalid_request_error', anthropic: 'invalid_request_error' };
const ANY_5XX = { openai: 'server_error', anthropic: 'api_error' };
/**
 * The verification refuses the service, or the operator has to mend something. After a 400 Claude Code sends the request up to five times more, each time without another beta
 * of its own, unless the type says that a policy refused it.
 */
const REFUSED = { openai: 'invalid_request_error', anthropic: 'policy_blocked' };

/** Seconds after which trying again is worth it, for what passes by itself. */
const RETRY_AFTER: Partial<Record<ErrorCode, number>> = {
  not_ready: 2,
  client_throttled: 60,
  too_many_uploads: 2,
  too_many_responses: 2,
  limits_unavailable: 2,
  shutting_down: 2,
  manifest_unavailable: 5,
  collateral_unavailable: 5,
  secret_exchange_failed: 5,
  control_api_failed: 5,
  secret_denied: 5,
};

/**
 * Answers that stay the same however often a client asks. Both SDKs repeat every 5xx, and 429, unless
 * `x-should-retry: false` says otherwise; agents look at the status alone.
 */
const FINAL: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'api_key_missing',
  'api_key_rejected',
  'service_key_rejected',
  'client_too_old',
  'client_unknown',
  'tokens_per_day_reached',
  'upstream_tls_untrusted',
  'upstream_http2_only',
  'upstream_redirect',
  'attestation_failed',
  'evidence_malformed',
  'manifest_mismatch',
  'manifest_unsupported',
  'manifest_invalid',
  'manifest_log_failed',
]);

export interface ErrorContext {
  readonly format: ErrorFormat;
  readonly requestId: string;
  /** The client's Accept header; exactly `text/event-stream` gets the error as an event (docs/protocol/inference.md 11). */
  readonly accept?: string | undefined;
  /** For method_not_allowed. */
  readonly allow?: readonly string[] | undefined;
}

/**
 * A whole answer that tells one error in the client's format: what happened, what to do, and the request id. Names of headers are in
 * lower case; content-length is one of them.
 */
export function errorResponse(
  error: PrivatemodeError,
  context: ErrorContext,
): { readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly body: Buffer } {
  const { code, status } = error;
  const [contentType, body] = shown(error, context);
  const headers: Record<string, string> = {
    'content-type': contentType,
    'content-length': String(body.length),
    'cache-control': 'no-store',
    'privatemode-encrypted': 'false', // as the reference marks what it says itself (docs/protocol/inference.md 11)
    'privatemode-proxy-error': code, // tells our own errors from those of the service (docs/decisions.md 18)
    ...INERT_HEADERS,
    ...requestIdHeader(context),
  };
  const retryAfter = error.retryAfter ?? RETRY_AFTER[code];
  if (retryAfter !== undefined) headers['retry-after'] = String(retryAfter);
  if (FINAL.has(code)) headers['x-should-retry'] = 'false';
  if (status === 401) headers['www-authenticate'] = 'Bearer';
  if (status === 426) Object.assign(headers, { upgrade: 'HTTP/1.1', connection: 'Upgrade' }); // RFC 9110 15.5.22 and 7.8
  if (context.allow !== undefined) headers['allow'] = context.allow.join(', ');
  return { status, headers, body };
}

function shown(error: PrivatemodeError, context: ErrorContext): [contentType: string, body: Buffer] {
  if (context.format === 'plain') {
    return ['text/plain; charset=utf-8', Buffer.from(`${sentence(error, context.requestId)}\n`)];
  }
  if (context.accept === 'text/event-stream') return ['text/event-stream', errorEvent(error, context)];
  return ['application/json', Buffer.from(JSON.stringify(errorObject(error, context)))];
}

/** The response to `POST /v1/messages/count_tokens`, marked as an estimate. */
export const estimateResponse = (tokens: number, requestId: string) => ({
  headers: {
    'content-type': 'application/json',
    'cache-control': 'no-store',
    'privatemode-proxy-estimate': 'true',
    ...requestIdHeader({ format: 'anthropic', requestId }),
    ...INERT_HEADERS,
  },
  body: JSON.stringify({ input_tokens: tokens }),
});

/** The request id where the SDKs of the format look for it. */
export const requestIdHeader = (of: Pick<ErrorContext, 'format' | 'requestId'>): Record<string, string> => ({
  [of.format === 'anthropic' ? 'request-id' : 'x-request-id']: of.requestId,
});

/**
 * The error as one SSE event, for a stream that has begun: the OpenAI SDKs raise on a `data` object with a member
 * `error`, the Anthropic SDKs on `event: error`. Never followed by a terminal marker.
 */
export function errorEvent(error: PrivatemodeError, context: ErrorContext): Buffer {
  const event = context.format === 'anthropic' ? 'event: error\n' : '';
  return Buffer.from(`${event}data: ${JSON.stringify(errorObject(error, context))}\n\n`);
}

function errorObject(error: PrivatemodeError, { format, requestId }: ErrorContext): object {
  const message = sentence(error, requestId);
  const type = typesOf(error);
  return format === 'anthropic'
    ? { type: 'error', error: { type: type.anthropic, message, code: error.code }, request_id: requestId }
    : {
        error: {
          message,
          type: type.openai,
          param: error.api?.param ?? null,
          code: error.api?.code ?? error.code,
        },
      };
}

function typesOf({ status, blame }: PrivatemodeError): {
  readonly openai: string;
  readonly anthropic: string;
} {
  if (status === 400 && blame !== 'client') return REFUSED;
  return TYPES[status] ?? (status < 500 ? ANY_4XX : ANY_5XX);
}

/** What happened, what to do next, and where to look it up. Error messages never hold user content (lib/errors.ts). */
function sentence(error: PrivatemodeError, requestId: string): string {
  const message = /[.!?]$/.test(error.message) ? error.message : `${error.message}.`;
  return `${message} ${error.remedy} (request id ${requestId})`;
}
