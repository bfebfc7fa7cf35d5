/**
 * One HTTPS port for everything the simulated remote side is: routes first, the inference handler for the
 * rest.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { createSecureServer } from 'node:http2';
import { createServer, type Server } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { asPrivatemodeError } from '../lib/errors.ts';
import { CONTROL_PREFIX } from './control.ts';
import type { Faults } from './faults.ts';
import { HttpError, sendError } from './json-http.ts';
import { type Exchange, findRoute, interrupted, type Route, type Service } from './route.ts';

export interface Http2Counts {
  sessions: number;
  requests: number;
}

export interface SimulatorServer {
  readonly port: number;
  /** HTTP/2 sessions whose client knows our settings, and requests that came over HTTP/2. */
  readonly http2: Http2Counts;
  /** Ends the connections that wait for a next request. */
  closeIdleConnections(): void;
  /** Ends every connection at once and resolves when nothing of the server is left. */
  close(): Promise<void>;
}

/** The TCP sockets below the TLS ones, by the client's address: only they can be reset. */
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
      if (request.socket === undefined) return; // an HTTP/2 stream whose connection is gone
      const socket = sockets.get(addressOf(request.socket));
      // A connection that is gone already is not in the table any more.
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
  /** Offers HTTP/2 by ALPN beside HTTP/1.1. */
  readonly http2?: boolean;
  /** Whether web pages of any origin may read the responses (Fetch, CORS protocol). */
  readonly cors?: boolean;
  readonly connections: ConnectionTable;
  /** Sees every request that is not for the control endpoint, before anything is read of it. */
  readonly onRequest: (
    request: IncomingMessage,
    response: ServerResponse,
    service: Service | 'inference',
  ) => void;
}

/** Listens, and resolves with the port. Rejects where the address cannot be bound. */
export async function startServer(options: ServerOptions): Promise<SimulatorServer> {
  const { host, port, tls, connections } = options;
  const listener = (request: IncomingMessage, response: ServerResponse): void => {
    if (!options.cors || !allowedPage(request, response)) void dispatch(request, response, options);
  };
  const ALPNProtocols = options.http2 ? ['h2', 'http/1.1'] : ['http/1.1'];
  const server = createServer({ ...tls, ALPNProtocols }, listener);
  const http2: Http2Counts = { sessions: 0, requests: 0 };
  if (options.http2) speakHttp2(server, listener, http2);
  // Defaults of Node that would cut slow uploads and idle keep-alive connections short.
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
    http2,
    closeIdleConnections: () => server.closeIdleConnections(),
    close: () => closeServer(server, connections),
  };
}

/** Hands the connections that negotiated HTTP/2 to a server of their own, which looks like HTTP/1.1 to the listener. */
function speakHttp2(server: Server, listener: RequestListener, counts: Http2Counts): void {
  const http2 = createSecureServer({ settings: { maxConcurrentStreams: 1000 } });
  http2.on('session', (session) => {
    session.once('localSettings', () => {
      counts.sessions++;
    });
    session.on('error', () => {});
  });
  http2.on('request', (request, response) => {
    counts.requests++;
    const host = request.headers[':authority'] ?? '';
    const isOrdinary = (at: number): boolean => !request.rawHeaders[at - (at % 2)]?.startsWith(':');
    const ordinary = Object.entries(request.headers).filter(([name]) => !name.startsWith(':'));
    Object.defineProperties(request, {
      headers: { value: { host, ...Object.fromEntries(ordinary) } },
      rawHeaders: { value: ['host', host, ...request.rawHeaders.filter((_, at) => isOrdinary(at))] },
    });
    listener(request as unknown as IncomingMessage, response as unknown as ServerResponse);
  });
  const [http1] = server.listeners('secureConnection') as ((socket: TLSSocket) => void)[];
  server.removeAllListeners('secureConnection');
  server.on('secureConnection', (socket: TLSSocket) => {
    if (socket.alpnProtocol === 'h2') http2.emit('secureConnection', socket);
    else http1?.call(server, socket);
  });
}

/** Lets every page read what is answered; answers a preflight here. */
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
  { routes, inference, faults, connections, onRequest }: ServerOptions,
): Promise<void> {
  const path = request.url ?? '/';
  const url = URL.parse(path, 'https://simulator');
  const route = url === null ? undefined : findRoute(routes, request.method ?? '', url.pathname);
  if (!path.startsWith(CONTROL_PREFIX)) onRequest(request, response, route?.service ?? 'inference');
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
