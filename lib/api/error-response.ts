/** How an error reaches a client: the status, headers, body or event of each API style. */
import { ERRORS, type PrivatemodeError } from '../errors.ts';

/**
 * The API style a client speaks, and so the form in which it understands errors. That of `responses` is
 * `openai`, but an error that comes before the first event of a response is never an event.
 */
export type ErrorFormat = 'openai' | 'responses' | 'anthropic' | 'plain';

/**
 * Headers of every response. They keep a browser from guessing another type for the body, and from running
 * anything in it.
 */
export const INERT_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': 'sandbox',
} as const;

/**
 * Error types by status, as the makers of the two styles name them; the SDKs choose their classes by status.
 */
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
 * For a 400 that is not the client's fault: the verification refuses the service, or the operator has to mend
 * something. After a 400 Claude Code sends the request up to five times more, each time without another one
 * of its betas, unless the type says that a policy refused it.
 */
const REFUSED = { openai: 'invalid_request_error', anthropic: 'policy_blocked' };

export interface ErrorContext {
  readonly format: ErrorFormat;
  readonly requestId: string;
  /**
   * The client's Accept header; exactly `text/event-stream` gets the error as an event with a name, except in
   * the Responses API (docs/protocol/inference.md 11).
   */
  readonly accept?: string | undefined;
  /** The status that the response has in place of the error's own: that of an error of the service. */
  readonly status?: number | undefined;
  /** The methods for the header Allow, with method_not_allowed. */
  readonly allow?: readonly string[] | undefined;
}

/**
 * A whole response that reports one error in the client's format: what happened, what to do, and the request
 * id. Names of headers are in lower case; content-length is one of them.
 */
export function errorResponse(
  error: PrivatemodeError,
  context: ErrorContext,
): { readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly body: Buffer } {
  const { code } = error;
  const status = context.status ?? error.status;
  const [contentType, body] = shown(error, context);
  const headers: Record<string, string> = {
    'content-type': contentType,
    'content-length': String(body.length),
    'cache-control': 'no-store',
    // The reference marks its own responses so (docs/protocol/inference.md 11).
    'privatemode-encrypted': 'false',
    'privatemode-proxy-error': code, // tells our own errors from those of the service (docs/decisions.md 18)
    ...INERT_HEADERS,
    ...requestIdHeader(context),
  };
  const row = ERRORS[code];
  const retryAfter = error.retryAfter ?? row.retryAfter;
  if (retryAfter !== undefined) headers['retry-after'] = String(retryAfter);
  if (row.isFinal) headers['x-should-retry'] = 'false';
  if (error.status === 401) headers['www-authenticate'] = 'Bearer';
  // RFC 9110 15.5.22 and 7.8
  if (error.status === 426) Object.assign(headers, { upgrade: 'HTTP/1.1', connection: 'Upgrade' });
  if (context.allow !== undefined) headers['allow'] = context.allow.join(', ');
  return { status, headers, body };
}

function shown(error: PrivatemodeError, context: ErrorContext): [contentType: string, body: Buffer] {
  if (context.format === 'plain') {
    return ['text/plain; charset=utf-8', Buffer.from(`${sentence(error, context.requestId)}\n`)];
  }
  if (context.accept === 'text/event-stream' && context.format !== 'responses')
    return ['text/event-stream', eventOf(error, context, true)];
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
 * The error as one SSE event, for a stream that has begun: the OpenAI SDKs raise on a `data` object with a
 * member `error`, the Anthropic SDKs on `event: error`. Never followed by a terminal marker.
 */
export const errorEvent = (error: PrivatemodeError, context: ErrorContext): Buffer =>
  eventOf(error, context, context.format === 'anthropic');

const eventOf = (error: PrivatemodeError, context: ErrorContext, named: boolean): Buffer =>
  Buffer.from(`${named ? 'event: error\n' : ''}data: ${JSON.stringify(errorObject(error, context))}\n\n`);

function errorObject(error: PrivatemodeError, { format, requestId, status }: ErrorContext): object {
  const message = sentence(error, requestId);
  const type = status === undefined ? typesOf(error) : typesAt(status);
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
  return typesAt(status);
}

const typesAt = (status: number): typeof ANY_4XX => TYPES[status] ?? (status < 500 ? ANY_4XX : ANY_5XX);

/**
 * What happened, what to do next, and the request id to look it up by. Error messages never hold user content
 * (lib/errors.ts).
 */
function sentence(error: PrivatemodeError, requestId: string): string {
  const message = /[.!?]$/.test(error.message) ? error.message : `${error.message}.`;
  return `${message} ${error.remedy} (request id ${requestId})`;
}
