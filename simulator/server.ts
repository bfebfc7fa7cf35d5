/**
 * The one HTTPS port of the simulator: requests go to the routes first, all others to the inference handler.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { asPrivatemodeError } from '../lib/errors.ts';
import { CONTROL_PREFIX } from './control.ts';
import type { Faults } from './faults.ts';
import { Rejection } from './inference/rejection.ts';
import { type Exchange, findRoute, interrupted, type Route, type Service, sendError } from './route.ts';

/**
 * Resets the TCP connection of a request at once (RST, not FIN); the client sees `read ECONNRESET`. Node
 * cannot reset a TLS socket, so the server resets the TCP socket below it.
 */
export type Reset = () => void;

const addressOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

export interface ServerOptions {
  readonly host: string;
  readonly port: number;
  /** PEM. */
  readonly tls: { readonly key: string; readonly cert: string };
  readonly routes: readonly Route[];
  readonly inference: (request: IncomingMessage, response: ServerResponse, reset: Reset) => void;
  readonly faults: Faults;
  /** Whether web pages of any origin may read the responses, except those of the control endpoint. */
  readonly cors?: boolean;
  /** Gets every request except those for the control endpoint, before anything is read from it. */
  readonly onRequest: (exchange: Pick<Exchange, 'request' | 'response'>, by: Service | 'inference') => void;
}

/** Starts the server and resolves once it listens. Rejects if the address cannot be bound. */
export async function startServer(options: ServerOptions) {
  const { host, port, tls } = options;
  /** The TCP sockets below the TLS sockets, by the client's address. */
  const sockets = new Map<string, Socket>();
  const server = createServer(tls, (request, response) => {
    // A connection that has ended is no longer in the table.
    const reset = (): void =>
      void (sockets.get(addressOf(request.socket))?.resetAndDestroy() ?? request.socket.destroy());
    void dispatch(request, response, reset, options);
  });
  // Node's defaults would end slow uploads and idle keep-alive connections early.
  server.requestTimeout = 0;
  server.keepAliveTimeout = 75_000;
  server.on('connection', (socket: Socket) => {
    const address = addressOf(socket);
    sockets.set(address, socket);
    socket.once('close', () => sockets.delete(address));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  /** Ends every connection at once and resolves when nothing of the server is left. */
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets.values()) socket.destroy();
    });
  return {
    port: (server.address() as AddressInfo).port,
    /** Ends the connections that wait for a next request. */
    closeIdleConnections: () => server.closeIdleConnections(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Lets every page read the response. Responds to a preflight itself, and then returns true. */
function allowedPage(request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader('access-control-allow-origin', '*');
  response.setHeader('access-control-expose-headers', '*');
  if (request.method !== 'OPTIONS') return false;
  response.writeHead(204, {
    'access-control-allow-headers': request.headers['access-control-request-headers'] ?? '',
    'access-control-allow-methods': 'GET, POST',
    'access-control-max-age': '600',
  });
  response.end();
  return true;
}

async function dispatch(
  request: IncomingMessage,
  response: ServerResponse,
  reset: Reset,
  { routes, inference, faults, cors, onRequest }: ServerOptions,
): Promise<void> {
  const url = URL.parse(request.url ?? '/', 'https://simulator');
  const isControl = url?.pathname.startsWith(CONTROL_PREFIX) ?? false;
  if (cors && !isControl && allowedPage(request, response)) return;
  const route = url === null ? undefined : findRoute(routes, request.method ?? '', url.pathname);
  if (!isControl) onRequest({ request, response }, route?.service ?? 'inference');
  if (route === undefined || url === null) return void inference(request, response, reset);
  const exchange: Exchange = { request, response, url };
  try {
    if (route.service !== undefined && interrupted(route.service, exchange, faults, reset)) return;
    await route.handle(exchange);
  } catch (error) {
    if (response.headersSent || response.destroyed) return void response.destroy();
    request.resume();
    const refusal =
      error instanceof Rejection ? error : new Rejection(500, asPrivatemodeError(error).message);
    sendError(response, refusal.status, refusal.message);
  }
}
