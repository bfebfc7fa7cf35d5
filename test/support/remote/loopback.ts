/** Servers on loopback, and their end: each of these registers its own clean-up with the running test. */
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect, type Server, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import type { ServerCertificate } from './tls-authority.ts';

type Cleanup = Pick<TestContext, 'after'>;

async function listen(server: Server, t: Cleanup): Promise<number> {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  };
  server.on('connection', keep);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}

export interface HttpsServer {
  readonly port: number;
  /** TLS connections accepted, and how many of them resumed a session. */
  readonly connections: { total: number; resumed: number };
}

export async function serveHttps(
  t: Cleanup,
  certificate: ServerCertificate,
  listener: RequestListener,
): Promise<HttpsServer> {
  const server = createHttpsServer(certificate, listener);
  const connections = { total: 0, resumed: 0 };
  server.on('secureConnection', (socket) => {
    connections.total++;
    if (socket.isSessionReused()) connections.resumed++;
  });
  server.on('tlsClientError', () => {});
  return { port: await listen(server, t), connections };
}

export interface ConnectProxy {
  readonly port: number;
  /** Every CONNECT: its target and credentials. */
  readonly seen: { readonly target: string; readonly authorization: string | undefined }[];
}

/**
 * An HTTP proxy that only knows CONNECT. `route` says on which loopback port a target really is (default: the
 * target's own), or which status refuses it; `undefined` leaves the client waiting.
 */
export async function serveConnectProxy(
  t: Cleanup,
  options: {
    readonly certificate?: ServerCertificate;
    readonly route?: (target: string) => { port: number } | { status: number } | undefined;
  } = {},
): Promise<ConnectProxy> {
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
  return { port: await listen(server, t), seen };
}
