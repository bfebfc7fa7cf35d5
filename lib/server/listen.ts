import { constants } from 'node:crypto';
import { once } from 'node:events';
import type { BigIntStats } from 'node:fs';
import { chmod, lstat, rename, unlink } from 'node:fs/promises';
import { Server as HttpServer, type RequestListener, ServerResponse } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { createConnection, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { listenFailed } from '../errors.ts';
import { type ConnectionTable, trackConnections } from './connections.ts';
import { refuseMalformed } from './malformed-head.ts';
import type { ClientCas, TlsMaterial } from './tls.ts';

/** Asks clients for certificates, which no handshake depends on. */
export interface ClientCertificates {
  readonly cas: ClientCas;
  /** Called after each handshake, before the first request. False: the client showed none. */
  readonly take: (socket: TLSSocket) => boolean;
  /** Called where the CAs that a certificate was checked against have been replaced. */
  readonly withdraw: (socket: Socket) => void;
}

/** A socket in the file system, to listen on in place of a port. */
export interface SocketFile {
  readonly path: string;
  /** Permissions, as chmod takes them. */
  readonly mode: number;
}

export interface ListenerOptions {
  readonly listenAddress: string;
  readonly port: number;
  /** In place of address and port; its path is free (`claimSocket`). */
  readonly socketFile?: SocketFile | undefined;
  readonly tls: TlsMaterial | undefined;
  /** Needs `tls`. */
  readonly clientCertificates?: ClientCertificates | undefined;
  /** A socket that listens already (socket activation); address and port are its own then. */
  readonly fd: number | undefined;
  /** The class of responses; Node's own by default. */
  readonly response?: typeof ServerResponse | undefined;
  /** Called with advice for the log when a client takes the port for the other kind, at most once a minute. */
  readonly onWrongScheme?: (advice: string) => void;
  /** ms for the head of a request, and for a TLS handshake. Default 15 s. */
  readonly headTimeout?: number;
}

export type Listener = Awaited<ReturnType<typeof listen>>;

/** Node's own limits fit browsers and small forms; they would end long uploads and streams that last minutes. */
const SERVER_OPTIONS = {
  requestTimeout: 0, // lib/gateway/receive-body.ts enforces a minimum rate instead
  connectionsCheckingInterval: 1_000,
  keepAliveTimeout: 75_000,
  maxHeaderSize: 64 * 1024,
  insecureHTTPParser: false,
  requireHostHeader: false, // lib/gateway/admission.ts refuses it, in the error format of the API
  noDelay: true,
} as const;
const MALFORMED = {
  'privatemode-proxy-error': 'malformed_request',
  connection: 'close',
  'content-length': 0,
} as const;
const TLS_OPTIONS = { minVersion: 'TLSv1.2', ALPNProtocols: ['http/1.1'] } as const;
/**
 * A resumed session, or one that a client renegotiates, would bring along what OpenSSL found about another handshake, under the CAs of
 * that time. Without tickets Node resumes none, since it keeps no sessions of its own.
 */
const FRESH_HANDSHAKES = constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION;

/** close() calls this; which connections idle, and may end, lib/server/connections.ts knows better. */
class PlainServer extends HttpServer {
  override closeIdleConnections(): void {}
}
class TlsServer extends HttpsServer {
  override closeIdleConnections(): void {}
}

/** What a replaced context needs anew. */
const contextOptions = (tls: TlsMaterial, cas: ClientCas | undefined) => ({
  cert: tls.cert,
  key: tls.key,
  minVersion: TLS_OPTIONS.minVersion,
  ...(cas === undefined ? {} : { ca: [...cas], secureOptions: FRESH_HANDSHAKES }),
});

/** Of a socket file between its creation and its chmod: no mode can be given to it before others could connect. */
export const SOCKET_UMASK = 0o077;

/**
 * Makes the path of a socket free before anybody listens there: removes the file of one on which nobody answers, which a process that was
 * killed leaves behind. Throws listen_failed.
 */
export async function claimSocket(path: string): Promise<void> {
  const found = await lstat(path, { bigint: true }).catch(() => undefined); // where it cannot be read, listening says why
  if (found === undefined) return;
  if (!found.isSocket()) throw listenFailed(path, path, { code: 'EEXIST' });
  const connection = createConnection(path);
  const reason = await once(connection, 'connect').then(
    () => 'EADDRINUSE',
    ({ code }: NodeJS.ErrnoException) => code,
  );
  connection.destroy();
  if (reason === 'ENOENT') return;
  if (reason !== 'ECONNREFUSED') throw listenFailed(path, path, { code: reason });
  const age = Date.now() - Number(found.mtimeMs);
  if (age < 0 || age >= FRESH) return removeStale(path, found); // below 0: the clock was set back
  await delay(FRESH - age);
  return claimSocket(path);
}

/** ms in which somebody who has just created a socket file may not have begun to listen on it. */
const FRESH = 1_000;

/**
 * Removes the file that was found stale, and no other: of two programs that start at once the second may find the socket of the first in
 * its place. Nothing can compare and remove in one step, so the file is moved aside first, and moved back if it is another one. Throws
 * listen_failed.
 */
export async function removeStale(path: string, stale: BigIntStats): Promise<void> {
  const aside = `${path}.${crypto.randomUUID().slice(0, 8)}`;
  try {
    await rename(path, aside);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'ENOENT') return;
    throw listenFailed(path, path, { code });
  }
  const { ino, mtimeNs } = await lstat(aside, { bigint: true });
  if (ino === stale.ino && mtimeNs === stale.mtimeNs) return unlink(aside);
  await rename(aside, path);
  throw listenFailed(path, path, { code: 'EADDRINUSE' });
}

/** Opens the application-facing port; resolves with the address it is bound to. Throws listen_failed. */
export async function listen(options: ListenerOptions, handle: RequestListener) {
  const { listenAddress: host, port: wanted, socketFile, fd, tls, headTimeout = 15_000 } = options;
  const { response = ServerResponse, clientCertificates } = options;
  const serverOptions = { ...SERVER_OPTIONS, headersTimeout: headTimeout, ServerResponse: response };
  const server: HttpServer | HttpsServer =
    tls === undefined
      ? new PlainServer(serverOptions)
      : new TlsServer({
          ...serverOptions,
          ...TLS_OPTIONS,
          ...contextOptions(tls, clientCertificates?.cas),
          handshakeTimeout: headTimeout,
          ...(clientCertificates === undefined ? {} : { requestCert: true, rejectUnauthorized: false }),
        });
  server.maxHeadersCount = 0; // Node would silently drop the rest; lib/gateway/admission.ts refuses too many
  const connections = trackConnections(server, { tls: tls !== undefined });
  const certified =
    clientCertificates && trackCertificates(server as HttpsServer, connections, clientCertificates);
  server.on('request', (req, res) => {
    // Node takes a request line without a version for HTTP/0.9, which has no headers and no errors.
    if (req.httpVersionMajor === 1) handle(req, res);
    else res.writeHead(505, MALFORMED).end();
  });
  server.on('checkExpectation', (_req, res) => res.writeHead(417, MALFORMED).end());
  // lib/gateway/receive-body.ts asks for the body once nothing speaks against it.
  server.on('checkContinue', (req, res) => server.emit('request', req, res));
  refuseMalformed(server, connections, options.onWrongScheme);

  const path = fd === undefined ? socketFile?.path : undefined;
  // In a worker it is the primary that creates the file (lib/workers/primary.ts); elsewhere it is there when listen returns.
  const umask = path === undefined ? undefined : process.umask(SOCKET_UMASK);
  server.listen(fd !== undefined ? { fd } : path !== undefined ? { path } : { host, port: wanted });
  if (umask !== undefined) process.umask(umask);
  await once(server, 'listening').catch((cause) => {
    const where = fd === undefined ? `${host} port ${wanted}` : `the inherited socket ${fd}`;
    throw listenFailed(path ?? where, path ?? wanted, cause);
  });
  if (socketFile !== undefined && path !== undefined) await chmod(path, socketFile.mode);
  server.on('error', () => {}); // one connection that could not be accepted must not end the others

  const bound = server.address();
  const { address, port } = bound !== null && typeof bound === 'object' ? bound : { address: '', port: 0 };
  return {
    /** Empty for a socket in the file system. */
    address,
    /** 0 for a socket in the file system. */
    port,
    /** `cas`: those of client certificates, where the listener asks for some. Connections that showed one end where these are others. */
    replaceTls(next: TlsMaterial, cas?: ClientCas): void {
      (server as HttpsServer).setSecureContext(contextOptions(next, cas));
      if (cas !== undefined) certified?.replaced(cas);
    },
    /** Accepts further connections, and tells clients by `Connection: close` in each response that they will not be kept. */
    announceEnd: connections.announceEnd,
    /**
     * Refuses new connections and closes idle ones; resolves when the last connection has gone, and what waits for the end of a response
     * was told. Node's server is closed before that: as soon as its last connection has begun to close.
     */
    async drain(): Promise<void> {
      connections.endAfterResponses();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      await connections.closed();
    },
    /** Ends every connection now. */
    destroy: connections.destroyAll,
  };
}

/**
 * Has the certificate of each connection read after its handshake. OpenSSL checks it once, against the CAs of the context that the
 * handshake began with; when these are replaced, it stands for nothing any more.
 */
function trackCertificates(
  server: HttpsServer,
  connections: ConnectionTable,
  { cas, take, withdraw }: ClientCertificates,
) {
  let current = cas;
  const begunWith = new WeakMap<Socket, ClientCas>();
  const certified = new WeakSet<Socket>();
  const end = (socket: Socket): void => {
    withdraw(socket);
    connections.endAfterItsResponses(socket);
  };
  server.on('connection', (accepted: Socket) => begunWith.set(accepted, current));
  server.on('secureConnection', (socket: TLSSocket) => {
    if (!take(socket)) return;
    certified.add(socket);
    const accepted = connections.acceptedUnder(socket);
    if (accepted === undefined || begunWith.get(accepted) !== current) end(socket);
  });
  return {
    replaced(next: ClientCas): void {
      if (next === current) return;
      current = next;
      for (const socket of connections.established()) if (certified.has(socket)) end(socket);
    },
  };
}
