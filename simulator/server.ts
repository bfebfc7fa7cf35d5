/**
 * The one HTTPS port of the simulator: requests go to the routes first, and all others to the inference
 * handler.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { asPrivatemodeError } from '../lib/errors.ts';
import { CONTROL_PREFIX } from './control.ts';
import type { Faults } from './faults.ts';
import { HttpError, sendError } from './json-http.ts';
import { type Exchange, findRoute, interrupted, type Route, type Service } from './route.ts';

export interface SimulatorServer {
  readonly port: number;
  /** Ends the connections that wait for a next request. */
  closeIdleConnections(): void;
  /** Ends every connection at once and resolves when nothing of the server is left. */
  close(): Promise<void>;
}

/** The TCP sockets below the TLS sockets, by the client's address. Only TCP sockets can be reset. */
export interface ConnectionTable {
  readonly sockets: Map<string, Socket>;
  reset(request: IncomingMessage): void;
}

const addressOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;

export function createConnectionTable(): ConnectionTable {
  const sockets = new Map<string, Socket>();
  return {
    sockets,
    reset(request) {
      const socket = sockets.get(addressOf(request.socket));
      // A connection that has ended is no longer in the table.
      if (socket === undefined) request.socket.destroy();
      else socket.resetAndDestroy();
    },
  };
}

export interface ServerOptions {
  readonly host: string;
  readonly port: number;
  /** PEM. */
  readonly tls: { readonly key: string; readonly cert: string };
  readonly routes: readonly Route[];
  readonly inference: RequestListener;
  readonly faults: Faults;
  /**
   * Whether web pages of any origin may read the responses (CORS protocol of the Fetch standard), except
   * those of the control endpoint.
   */
  readonly cors?: boolean;
  readonly connections: ConnectionTable;
  /** Gets every request except those for the control endpoint, before anything is read from it. */
  readonly onRequest: (
    request: IncomingMessage,
    response: ServerResponse,
    service: Service | 'inference',
  ) => void;
}

/** Starts the server and resolves once it listens. Rejects if the address cannot be bound. */
export async function startServer(options: ServerOptions): Promise<SimulatorServer> {
  const { host, port, tls, connections } = options;
  const server = createServer(tls, (request, response) => void dispatch(request, response, options));
  // Node's defaults would end slow uploads and idle keep-alive connections early.
  server.requestTimeout = 0;
  server.keepAliveTimeout = 75_000;
  server.on('connection', (socket: Socket) => {
    const address = addressOf(socket);
    connections.sockets.set(address, socket);
    socket.once('close', () => connections.sockets.delete(address));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    closeIdleConnections: () => server.closeIdleConnections(),
    close: () => closeServer(server, connections),
  };
}

/** Lets every page read the response. Responds to a preflight itself, and then returns true. */
function allowedPage(request: IncomingMessage, response: ServerResponse): boolean {
  response.setHeader('access-control-allow-origin', '*');
  response.setHeader('access-control-expose-headers', '*');
  if (request.method !== 'OPTIONS') return false;
  const asked = request.headers['access-control-request-headers'] ?? '';
  response.writeHead(204, {
    'access-control-allow-headers': asked,
    'access-control-allow-methods': 'GET, POST',
    'access-control-max-age': '600',
  });
  response.end();
  return true;
}

async function dispatch(
  request: IncomingMessage,
  response: ServerResponse,
  { routes, inference, faults, cors, connections, onRequest }: ServerOptions,
): Promise<void> {
  const url = URL.parse(request.url ?? '/', 'https://simulator');
  const isControl = url?.pathname.startsWith(CONTROL_PREFIX) ?? false;
  if (cors && !isControl && allowedPage(request, response)) return;
  const route = url === null ? undefined : findRoute(routes, request.method ?? '', url.pathname);
  if (!isControl) onRequest(request, response, route?.service ?? 'inference');
  if (route === undefined || url === null) {
    inference(request, response);
    return;
  }
  const exchange: Exchange = { request, response, url };
  try {
    if (route.service !== undefined && interrupted(route.service, exchange, faults, connections.reset))
      return;
    await route.handle(exchange);
  } catch (error) {
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    request.resume();
    if (error instanceof HttpError) sendError(response, error.status, error.message);
    else sendError(response, 500, asPrivatemodeError(error).message);
  }
}

function closeServer(server: Server, { sockets }: ConnectionTable): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    for (const socket of sockets.values()) socket.destroy();
  });
}
