/** Responses of our own, how one ends while the request body is still arriving, and how an exchange ends that failed. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { errorResponse } from '../api/error-format.ts';
import { asPrivatemodeError, type PrivatemodeError } from '../errors.ts';
import { shortPieces } from '../network/join-pieces.ts';
import { count } from '../observe/counters.ts';
import { type Exchange, ownHeaders } from './exchange.ts';
import { ClientGone } from './life.ts';
import { aboutOwnKey } from './own-key.ts';

/**
 * Responds with one of our own errors in the format of the caller's API; `headers` and `status` come on top (an upstream's
 * own error status says more than ours). The body never quotes what the caller sent.
 */
export function respondError(
  exchange: Exchange,
  error: PrivatemodeError,
  extra: { headers?: OutgoingHttpHeaders; status?: number; allow?: readonly string[] | undefined } = {},
): void {
  const { req, match } = exchange;
  const { format, requestId } = exchange.caller;
  const { allow, status, headers } = extra;
  // In the Responses API an error is no event before the first one of a response.
  const accept = match?.endpoint.translatedTo === undefined ? req.headers.accept : undefined;
  const response = errorResponse(error, { format, requestId, accept, allow });
  const whole = { ...response.headers, ...ownHeaders(exchange), ...headers };
  respondWhole(exchange, { status: status ?? response.status, headers: whole, body: response.body });
}

/** A whole response, given now, even while the request body is still arriving. */
export function respondWhole(
  exchange: Exchange,
  { status, headers, ...given }: { status: number; headers: OutgoingHttpHeaders; body?: string | Uint8Array },
): void {
  const { req, res } = exchange;
  if (res.headersSent || res.destroyed) return;
  const body = Buffer.from(given.body ?? '');
  const hasBody = status !== 204 && status !== 304;
  beginWhole(exchange, { status, headers, length: hasBody ? body.length : undefined });
  if (hasBody && req.method !== 'HEAD' && body.length > 0) res.write(body);
  endAfterUpload(req, res);
}

/** The head of a whole response with a body of that length, if it has one; endAfterUpload ends it. */
export function beginWhole(
  { req, res }: Exchange,
  { status, headers, length }: { status: number; headers: OutgoingHttpHeaders; length: number | undefined },
): void {
  res.writeHead(status, {
    ...headers,
    ...(length === undefined ? {} : { 'content-length': length }),
    ...(isArriving(req) ? { connection: 'close' } : {}),
  });
}

/** Whether there is a body that has not arrived completely; a request without one is not complete at once either. */
export function isArriving(req: IncomingMessage): boolean {
  if (req.complete || req.destroyed) return false;
  const { 'content-length': length, 'transfer-encoding': encoding } = req.headers;
  return encoding !== undefined || (length !== undefined && length !== '0');
}

const DISCARD_BYTES = 1024 * 1024;
/** Pieces of one byte cost as much as large ones. */
const DISCARD_PIECES = 10_000;
const DISCARD_MS = 1_000;

/**
 * Ends a complete response that was written while the body is still arriving. The response must survive the connection it
 * came on: closing with unread bytes turns the close into a reset, which takes the response away under the client's eyes.
 * So the rest of the body is read and thrown away, at most 1 MiB, 10 000 pieces or one second of it, before the response ends and,
 * being marked `Connection: close`, takes the connection with it.
 */
export function endAfterUpload(req: IncomingMessage, res: ServerResponse): void {
  if (!isArriving(req)) {
    res.end();
    return;
  }
  let discarded = 0;
  let pieces = -shortPieces(req);
  const end = (): void => {
    clearTimeout(timer);
    req.off('data', discard);
    req.off('end', end);
    res.end();
  };
  const discard = (chunk: Uint8Array): void => {
    discarded += chunk.length;
    pieces += 1;
    if (discarded > DISCARD_BYTES || pieces + shortPieces(req) > DISCARD_PIECES) end();
  };
  const timer = setTimeout(end, DISCARD_MS);
  req.on('data', discard);
  req.once('end', end);
  res.once('close', () => clearTimeout(timer));
  req.resume();
}

/** The end of an exchange that failed before its response was complete; never throws. */
export function concludeFailed(exchange: Exchange, thrown: unknown): void {
  const { deps, res, match, accounts } = exchange;
  if (thrown instanceof ClientGone || res.destroyed) {
    res.destroy();
    return;
  }
  const error = aboutOwnKey(exchange, asPrivatemodeError(thrown));
  if (res.headersSent) {
    noteBroken(exchange, error);
    breakConnection(exchange);
  } else {
    accounts.failed(error);
    respondError(exchange, error);
    if (match !== undefined) count(deps.metrics.counters.responses, res.statusCode);
  }
}

/** Logs the failure before the error event goes out: an application that does not read may leave before it. breakConnection follows. */
export function noteBroken({ life, accounts }: Exchange, failure: PrivatemodeError): void {
  life.markBroken();
  accounts.failed(failure);
}

/** Ends the connection before the response is complete, so that no client can take what it got for all of it. `life` is marked before. */
export function breakConnection({ res }: Exchange): void {
  // Without chunked framing, as for HTTP/1.0 clients, an ordinary close would look like the end of the body.
  const { socket } = res;
  if (res.chunkedEncoding || socket === null || 'encrypted' in socket) res.destroy();
  else socket.resetAndDestroy();
}
