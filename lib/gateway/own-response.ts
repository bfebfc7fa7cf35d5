/** Writes whole responses and the proxy's errors, and ends an exchange that failed. */
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { errorResponse } from '../api/error-response.ts';
import { asPrivatemodeError, ERRORS, PrivatemodeError } from '../errors.ts';
import { ClientGone, type Exchange } from './exchange.ts';

/** The error as the application gets it: with --clients its remedy is the developer's, not the operator's. */
export function forCaller({ deps }: Pick<Exchange, 'deps'>, error: PrivatemodeError): PrivatemodeError {
  // An error of the Responses API names the place in the request, and what to send there.
  if (deps.clients === undefined || error.api !== undefined) return error;
  const remedy = ERRORS[error.code].remedies.developer;
  if (remedy === undefined) return error;
  const { code, message, retryAfter, detail, cause = error } = error;
  return new PrivatemodeError(code, message, { cause, retryAfter, detail, remedy });
}

/**
 * Responds with one of our own errors, in the error format of the caller's API. `status` replaces that of the
 * error, because an upstream's own says more. The body never quotes what the caller sent.
 */
export function respondError(
  exchange: Exchange,
  error: PrivatemodeError,
  { headers, status }: { headers?: OutgoingHttpHeaders; status?: number } = {},
): void {
  const { format, requestId, decision } = exchange;
  const { accept } = exchange.req.headers;
  const allow = decision.kind === 'refusal' ? decision.allow : undefined;
  const response = errorResponse(forCaller(exchange, error), { format, requestId, accept, allow, status });
  respondWhole(exchange, { ...response, headers: { ...response.headers, ...exchange.headers, ...headers } });
}

/**
 * Writes a whole response now, even while the request body is still arriving. A 204 must not have a
 * Content-Length (RFC 9110 8.6).
 */
export function respondWhole(
  exchange: Exchange,
  { status, headers, body }: { status: number; headers: OutgoingHttpHeaders; body?: string | Uint8Array },
): void {
  const { req, res } = exchange;
  if (res.headersSent || res.destroyed) return;
  if (body !== undefined && status !== 204) headers['content-length'] = Buffer.byteLength(body);
  if (isArriving(req)) headers['connection'] = 'close';
  res.writeHead(status, headers);
  if (body !== undefined && req.method !== 'HEAD') res.write(body);
  endAfterUpload(exchange);
}

/** Whether the request has a body that has not arrived. Without one it is not `complete` at once either. */
export function isArriving(req: IncomingMessage): boolean {
  if (req.complete || req.destroyed) return false;
  const { 'content-length': length, 'transfer-encoding': encoding } = req.headers;
  return encoding !== undefined || (length !== undefined && length !== '0');
}

const DISCARD_BYTES = 1024 * 1024;

/**
 * Ends a complete response that was written while the request body is still arriving. If a connection closes
 * with unread bytes, the close becomes a reset, and the client loses the response before it has read it. So
 * the rest of the body is read and thrown away first: at most 1 MiB or one second of it.
 */
function endAfterUpload({ deps, deadline, req, res }: Exchange): void {
  const end = (): void => void res.end();
  if (!isArriving(req)) return void end();
  let discarded = 0;
  const discard = (chunk: Uint8Array): void => {
    discarded += chunk.length;
    if (discarded > DISCARD_BYTES) end();
  };
  deadline.wait(deps.clock.times.discardWait, end);
  req.on('data', discard).once('end', end).resume();
}

/** Ends an exchange that failed before its response was complete. Never throws. */
export function concludeFailed(exchange: Exchange, thrown: unknown): void {
  const { res, match, client } = exchange;
  if (thrown instanceof ClientGone || res.destroyed) return void res.destroy();
  let error = asPrivatemodeError(thrown);
  if (client !== undefined && error.code === 'api_key_rejected') {
    // The application has a token and no key of the service: a 401 would make people look at their token.
    const told = 'the service rejects the key of this gateway';
    error = new PrivatemodeError('service_key_rejected', told, { cause: error });
  }
  try {
    if (res.headersSent) {
      noteBroken(exchange, error);
      return void breakConnection(exchange);
    }
    exchange.failed(error);
    respondError(exchange, error);
    if (match !== undefined) exchange.done(res.statusCode);
  } catch (fault) {
    exchange.failed(asPrivatemodeError(fault));
    res.destroy();
  }
}

/**
 * Marks the exchange as broken, and logs the failure: before the error event, which an application that does
 * not read may not wait for. breakConnection follows.
 */
export function noteBroken(exchange: Exchange, failure: PrivatemodeError): void {
  exchange.broken = true;
  exchange.failed(failure, exchange.res.statusCode);
}

/** Ends the connection, so that no client can take a part of the response for all of it. */
export function breakConnection({ res }: Pick<Exchange, 'res'>): void {
  // Without chunked framing, as for HTTP/1.0 clients, an ordinary close would look like the end of the body.
  // Only TCP has a reset: on a socket file Node throws (docs/hazards.md 12), and on a TLS socket, so the
  // listener resets the connection below (lib/listener/connections.ts).
  const { socket } = res;
  const isTcp = socket !== null && 'family' in socket.address();
  if (res.inChunks || !isTcp) res.destroy();
  else if ('encrypted' in socket) {
    if (!socket.emit('reset')) res.destroy();
  } else socket.resetAndDestroy();
}
