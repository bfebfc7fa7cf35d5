/**
 * Writes the proxy's own responses, ends a response while the request body is still arriving, and ends an
 * exchange that failed.
 */
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { errorResponse } from '../api/error-response.ts';
import { asPrivatemodeError, ERRORS, PrivatemodeError } from '../errors.ts';
import { count } from '../observe/counters.ts';
import { AppResponse } from './app-response.ts';
import { ClientGone } from './life.ts';
import { aboutOwnKey } from './refused-key.ts';
import { type Exchange, ownHeaders } from './request-state.ts';

/**
 * The error as the application gets it. With --clients its remedy is the developer's; without, the error
 * stays as it is. The log gets the error itself, whose remedy is for the operator.
 */
export function forCaller({ deps }: Pick<Exchange, 'deps'>, error: PrivatemodeError): PrivatemodeError {
  const { code, message, retryAfter, api, detail, cause } = error;
  // An error of the Responses API names the place in the request, and what to send there.
  const remedy =
    deps.clients === undefined || api !== undefined ? undefined : ERRORS[code].remedies.developer;
  if (remedy === undefined) return error;
  return new PrivatemodeError(code, message, { cause: cause ?? error, retryAfter, api, detail, remedy });
}

/**
 * Responds with one of our own errors, in the error format of the caller's API. `headers` are added. `status`
 * replaces that of the error, because an upstream's own error status says more than ours. The body never
 * quotes what the caller sent.
 */
export function respondError(
  exchange: Exchange,
  error: PrivatemodeError,
  extra: { headers?: OutgoingHttpHeaders; status?: number; allow?: readonly string[] | undefined } = {},
): void {
  const { format, requestId } = exchange.caller;
  const { allow, status, headers } = extra;
  const { accept } = exchange.req.headers;
  const response = errorResponse(forCaller(exchange, error), { format, requestId, accept, allow, status });
  const whole = { ...response.headers, ...ownHeaders(exchange), ...headers };
  respondWhole(exchange, { status: response.status, headers: whole, body: response.body });
}

/** Writes a whole response now, even while the request body is still arriving. */
export function respondWhole(
  exchange: Exchange,
  { status, headers, ...given }: { status: number; headers: OutgoingHttpHeaders; body?: string | Uint8Array },
): void {
  const { req, res } = exchange;
  if (res.headersSent || res.destroyed) return;
  const body = Buffer.from(given.body ?? '');
  const hasBody = status !== 204 && status !== 304;
  beginWhole(exchange, { status, headers, length: hasBody ? body.length : undefined });
  finishWhole(exchange, hasBody && req.method !== 'HEAD' ? [body] : []);
}

/**
 * Writes the head of a whole response. `length`: bytes of its body; undefined: it has none. finishWhole
 * writes the body.
 */
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

/**
 * Writes the body of a whole response as fast as the client takes it, and ends the response. Each write has
 * 64 KiB at most, so that a slow client has its time for each.
 */
export function finishWhole(exchange: Exchange, body: readonly Uint8Array[]): void {
  const { res } = exchange;
  const pieces = body.flatMap(piecesOf);
  let written = 0;
  function next(): void {
    while (written < pieces.length) {
      if (res.destroyed) return;
      const hasRoom = res.write(pieces[written++]);
      if (hasRoom) continue;
      res.once('drain', next);
      return;
    }
    endAfterUpload(exchange);
  }
  next();
}

/**
 * Whether the request has a body that has not arrived completely. `complete` alone does not tell: a request
 * without a body is not complete at once either.
 */
export function isArriving(req: IncomingMessage): boolean {
  if (req.complete || req.destroyed) return false;
  const { 'content-length': length, 'transfer-encoding': encoding } = req.headers;
  return encoding !== undefined || (length !== undefined && length !== '0');
}

const DISCARD_BYTES = 1024 * 1024;
/** A limit of its own: pieces of one byte cost as much as large ones. */
const DISCARD_PIECES = 10_000;

/**
 * Ends a complete response that was written while the request body is still arriving. If a connection closes
 * with unread bytes, the close becomes a reset, and the client loses the response before it has read it. So
 * the rest of the body is read and thrown away first: at most 1 MiB, 10 000 pieces or one second of it. Then
 * the response ends. It is marked `Connection: close`, so the connection ends with it.
 */
export function endAfterUpload({ deps, req, res }: Exchange): void {
  if (!isArriving(req)) {
    res.end();
    return;
  }
  let discarded = 0;
  let pieces = 0;
  const end = (): void => {
    stopWaiting();
    req.off('data', discard);
    req.off('end', end);
    res.end();
  };
  const discard = (chunk: Uint8Array): void => {
    discarded += chunk.length;
    pieces += 1;
    if (discarded > DISCARD_BYTES || pieces > DISCARD_PIECES) end();
  };
  const stopWaiting = deps.clock.after(deps.clock.times.discardWait, end);
  req.on('data', discard);
  req.once('end', end);
  res.once('close', stopWaiting);
  req.resume();
}

/** Ends an exchange that failed before its response was complete. Never throws. */
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

/**
 * Marks the exchange as broken, and logs the failure. The log line comes before the error event, because an
 * application that does not read may leave before that event. breakConnection follows.
 */
export function noteBroken({ life, accounts, res }: Exchange, failure: PrivatemodeError): void {
  life.markBroken();
  accounts.failed(failure, res.statusCode);
}

/**
 * Ends the connection before the response is complete, so that no client can take a part of the response for
 * all of it. Call noteBroken or `life.markBroken` before.
 */
export function breakConnection({ res }: Pick<Exchange, 'res'>): void {
  // Without chunked framing, as for HTTP/1.0 clients, an ordinary close would look like the end of the body.
  // Only TCP has a reset: on a socket file Node throws (docs/hazards.md 12).
  const { socket } = res;
  const isTcp = socket !== null && 'family' in socket.address();
  // On a TLS socket it throws too, so the listener resets the connection below (lib/listener/connections.ts).
  const inChunks = res instanceof AppResponse && res.inChunks;
  if (inChunks || !isTcp) res.destroy();
  else if ('encrypted' in socket) {
    if (!socket.emit('reset')) res.destroy();
  } else socket.resetAndDestroy();
}

/** The bytes as views of at most 64 KiB each: a client takes a large piece in parts. */
export function piecesOf(bytes: Uint8Array): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += 65_536) pieces.push(bytes.subarray(at, at + 65_536));
  return pieces;
}
