/** Servers on loopback, and their end: each of these registers its own clean-up with the running test. */
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import {
  type AddressInfo,
  connect,
  createServer as createTcpServer,
  type Server,
  type Socket,
} from 'node:net';
import type { TestContext } from 'node:test';
import type { ServerCertificate } from './tls-authority.ts';

type Cleanup = Pick<TestContext, 'after'>;

/** A server that listens on a free port. */
export interface Listening {
  readonly port: number;
  /** The TCP connections to it. */
  readonly open: ReadonlySet<Socket>;
  /** How many there have been. */
  total(): number;
  /** Ends it, and all connections. */
  close(): Promise<void>;
}

export async function opened(server: Server, host = '127.0.0.1'): Promise<Listening> {
  const open = new Set<Socket>();
  let total = 0;
  server.on('connection', (socket: Socket) => {
    total++;
    open.add(socket);
    socket.on('error', () => {}).once('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return {
    port: (server.address() as AddressInfo).port,
    open,
    total: () => total,
    close() {
      for (const socket of open) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

/** The same until the test ends. */
export async function listening(t: Cleanup, server: Server): Promise<Listening> {
  const listener = await opened(server);
  t.after(() => listener.close());
  return listener;
}

/** A server that accepts connections and says nothing. */
export const serveNobody = (t: Cleanup): Promise<Listening> =>
  listening(
    t,
    createTcpServer((socket) => socket.resume()),
  );

/** `connections`: TLS connections accepted, and how many of them resumed a session. */
export async function serveHttps(t: Cleanup, certificate: ServerCertificate, listener: RequestListener) {
  const server = createHttpsServer(certificate, listener);
  const connections = { total: 0, resumed: 0 };
  server.on('secureConnection', (socket) => {
    connections.total++;
    if (socket.isSessionReused()) connections.resumed++;
  });
  server.on('tlsClientError', () => {});
  const { port } = await listening(t, server);
  return { port, connections };
}

/**
 * An HTTP proxy that only knows CONNECT. `route` says on which loopback port a target really is (default: the
 * target's own), or which status refuses it; `undefined` leaves the client waiting.
 * `seen`: every CONNECT.
 */
export async function serveConnectProxy(
  t: Cleanup,
  options: {
    readonly certificate?: ServerCertificate;
    readonly route?: (target: string) => { port: number } | { status: number } | undefined;
  } = {},
) {
  const server = options.certificate ? createHttpsServer(options.certificate) : createHttpServer();
  const seen: { target: string; authorization: string | undefined }[] = [];
  server.on('connect', (request, socket: Socket, head) => {
    const target = request.url ?? '';
    seen.push({ target, authorization: request.headers['proxy-authorization'] });
    const route = options.route ?? ((to: string) => ({ port: Number(to.split(':').at(-1)) }));
    const decision = route(target);
    if (decision === undefined) return;
    if ('status' in decision) {
      socket.end(`HTTP/1.1 ${decision.status} No\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    const onward = connect(decision.port, '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      onward.write(head);
      socket.pipe(onward).pipe(socket);
    });
    onward.on('error', () => socket.destroy());
    socket.on('error', () => onward.destroy());
    socket.on('close', () => onward.destroy());
  });
  const { port } = await listening(t, server);
  return { port, seen };
}
