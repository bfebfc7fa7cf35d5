import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { type ErrorContext, errorAnswer } from '../api/error-format.ts';
import type { PrivatemodeError } from '../errors.ts';
import { endAfterUpload, isArriving } from './early-answer.ts';

/**
 * Answers with one of our own errors in the words of the caller's API; `headers` and `status` come on top (an upstream's
 * own error status says more than ours). The body never quotes what the caller sent.
 */
export function answerError(
  req: IncomingMessage,
  res: ServerResponse,
  error: PrivatemodeError,
  context: Omit<ErrorContext, 'accept'>,
  extra: { readonly headers?: OutgoingHttpHeaders; readonly status?: number } = {},
): void {
  const { status, headers, body } = errorAnswer(error, { ...context, accept: req.headers.accept });
  answer(req, res, { status: extra.status ?? status, headers: { ...headers, ...extra.headers }, body });
}

/** A whole answer of our own, given now, even while the request body is still arriving. */
export function answer(
  req: IncomingMessage,
  res: ServerResponse,
  options: {
    readonly status: number;
    readonly headers?: OutgoingHttpHeaders;
    readonly body?: string | Uint8Array;
  },
): void {
  if (res.headersSent || res.destroyed) return;
  const body = Buffer.from(options.body ?? '');
  const hasBody = options.status !== 204 && options.status !== 304;
  res.writeHead(options.status, {
    ...options.headers,
    ...(hasBody ? { 'content-length': body.length } : {}),
    ...(isArriving(req) ? { connection: 'close' } : {}),
  });
  if (hasBody && req.method !== 'HEAD' && body.length > 0) res.write(body);
  endAfterUpload(req, res);
}
