/** Writes whole responses and the proxy's errors, and ends an exchange that failed. */
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { errorResponse } from '../api/error-response.ts';
import { asPrivatemodeError, ERRORS, PrivatemodeError } from '../errors.ts';
import { ClientGone, type Exchange } from './exchange.ts';

/** The error as the application gets it. With --clients, the remedy is for developers, not operators. */
export function forCaller({ deps }: Exchange, error: PrivatemodeError): PrivatemodeError {
  const remedy = ERRORS[error.code].remedies.developer;
  // An error of the Responses API has a remedy of its own.
  if (deps.clients === undefined || error.api !== undefined || remedy === undefined) return error;
  return new PrivatemodeError(error.code, error.message, { ...error, cause: error.cause ?? error, remedy });
}

/** Responds with one of our own errors. `status`: an upstream status; it replaces the error's own. */
export function respondError(exchange: Exchange, error: PrivatemodeError, status?: number): void {
  const { format, requestId, decision } = exchange;
  const { accept } = exchange.req.headers;
  const allow = 'allow' in decision ? decision.allow : undefined;
  const response = errorResponse(forCaller(exchange, error), { format, requestId, accept, allow, status });
  respondWhole(exchange, { ...response, headers: { ...response.headers, ...exchange.headers } });
}

type WholeResponse = { status: number; headers: OutgoingHttpHeaders; body?: string | Uint8Array };
const DISCARD_BYTES = 1024 * 1024;
const DISCARD_CHUNKS = 1024;

/**
 * Writes a whole response. Before the response ends, the rest of the request's body is read and dropped.
 * Reading stops after 1 MiB or one second. A response with status 204 has no Content-Length (RFC 9110 8.6).
 */
export function respondWhole(exchange: Exchange, { status, headers, body }: WholeResponse): void {
  const { deps, deadline, req, res } = exchange;
  if (res.headersSent || res.destroyed) return;
  if (body !== undefined && status !== 204) headers['content-length'] = Buffer.byteLength(body);
  const isEarly = isArriving(req);
  if (isEarly) headers['connection'] = 'close';
  res.writeHead(status, headers);
  if (body !== undefined && req.method !== 'HEAD') res.write(body);
  if (!isEarly) return void res.end();
  // A connection that closes with unread bytes is reset, and the client may lose the response.
  const end = (): void => void res.end();
  let discarded = 0;
  let chunks = 0;
  const discard = (chunk: Uint8Array): void => {
    discarded += chunk.length;
    chunks += 1;
    if (discarded > DISCARD_BYTES || chunks > DISCARD_CHUNKS) end();
  };
  deadline.wait(deps.clock.times.discardWait, end);
  req.on('data', discard).once('end', end).resume();
}

/** Whether a body has yet to arrive. `req.complete` cannot tell: it is false at first without a body. */
export function isArriving(req: IncomingMessage): boolean {
  if (req.complete || req.destroyed) return false;
  const { 'content-length': length, 'transfer-encoding': encoding } = req.headers;
  return encoding !== undefined || (length !== undefined && length !== '0');
}

/** Ends an exchange that failed before its response was complete. Never throws. */
export function concludeFailed(exchange: Exchange, thrown: unknown): void {
  const { res, client } = exchange;
  if (thrown instanceof ClientGone || res.destroyed) return void res.destroy();
  let error = asPrivatemodeError(thrown);
  if (client !== undefined && error.code === 'api_key_rejected') {
    // The application has no key of the service, so a 401 would make people look at their own token.
    const told = 'the service rejects the key of this gateway';
    error = new PrivatemodeError('service_key_rejected', told, { cause: error });
  }
  try {
    if (res.headersSent) {
      noteBroken(exchange, error);
      return void breakConnection(exchange);
    }
    exchange.interrupt(error); // stops what still runs, for example an upload
    exchange.failed(error);
    respondError(exchange, error);
  } catch (fault) {
    exchange.failed(asPrivatemodeError(fault));
    res.destroy();
  }
}

/** Notes the failure before the error event is sent, because the application may leave at that event. */
export function noteBroken(exchange: Exchange, failure: PrivatemodeError): void {
  exchange.broken = true;
  exchange.failed(failure, exchange.res.statusCode);
}

/** Ends the connection, so that no client can take a part of the response for all of it. */
export function breakConnection({ res }: Pick<Exchange, 'res'>): void {
  // Without chunked framing (HTTP/1.0), an ordinary close would look like the end of the body. Only TCP has a
  // reset (docs/architecture.md H12). Below TLS, the listener resets (lib/listener/connections.ts).
  const { socket } = res;
  const isTcp = socket !== null && 'family' in socket.address();
  if (res.inChunks || !isTcp) res.destroy();
  else if (!('encrypted' in socket)) socket.resetAndDestroy();
  else if (!socket.emit('reset')) res.destroy();
}
