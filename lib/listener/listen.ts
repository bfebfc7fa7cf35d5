/**
 * Opens the listener for applications: on a port, a socket file or an inherited socket, with or without TLS
 * and client certificates.
 */
import { constants } from 'node:crypto';
import { once } from 'node:events';
import type { BigIntStats } from 'node:fs';
import { lstat, rename, unlink } from 'node:fs/promises';
import { Server as HttpServer, type RequestListener, ServerResponse } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { createConnection, type Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { type Clock, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { inheritedFailed, listenFailed } from '../listen-failed.ts';
import { type ConnectionTable, trackConnections } from './connections.ts';
import { refuseMalformed } from './not-http.ts';
import type { ClientCas, TlsMaterial } from './tls.ts';

/** Makes the listener ask clients for certificates. No handshake fails for want of a valid one. */
export interface CertificateRequest {
  readonly cas: ClientCas;
  /**
   * Called after each handshake, before the first request. Returns false if the client showed no certificate.
   */
  readonly take: (socket: TLSSocket) => boolean;
  /** Called for a connection when the CAs that its certificate was checked against have been replaced. */
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
  /**
   * Other processes may listen on the same address and port (SO_REUSEPORT; Linux alone). The listener then
   * begins with its port closed, and `open` and `shut` change that.
   */
  readonly reusePort?: boolean | undefined;
  /** Used in place of address and port. The caller has made its path free (`claimSocket`). */
  readonly socketFile?: SocketFile | undefined;
  readonly tls: TlsMaterial | undefined;
  /** Needs `tls`. */
  readonly clientCertificates?: CertificateRequest | undefined;
  /**
   * The descriptor of a socket that listens already (socket activation). The socket has its own address and
   * port; those of the options do not count then.
   */
  readonly fd: number | undefined;
  /** The class of responses; Node's own by default. */
  readonly response?: typeof ServerResponse | undefined;
  /**
   * Called with advice for the log when a client speaks plain HTTP to an HTTPS port or TLS to a plain port,
   * at most once a minute.
   */
  readonly onWrongScheme?: (advice: string) => void;
  readonly clock: Clock;
}

export type Listener = Awaited<ReturnType<typeof listen>>;

/**
 * Node's own limits fit browsers and small forms; they would end long uploads and streams that last minutes.
 */
const SERVER_OPTIONS = {
  requestTimeout: 0, // lib/gateway/receive.ts enforces a minimum rate instead
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
 * Forbids tickets and renegotiation. A resumed session, or one that a client renegotiates, would keep the
 * result of an earlier handshake, which OpenSSL checked under the CAs of that time. Without tickets Node
 * resumes no session, since it keeps none of its own.
 */
const FRESH_HANDSHAKES = constants.SSL_OP_NO_TICKET | constants.SSL_OP_NO_RENEGOTIATION;

/**
 * Servers whose close() leaves idle connections alone: lib/listener/connections.ts knows better which
 * connections idle, and may end.
 */
class PlainServer extends HttpServer {
  override closeIdleConnections(): void {}
}
class TlsServer extends HttpsServer {
  override closeIdleConnections(): void {}
}

/** The options of a TLS context, which a new context needs again when it replaces the first. */
const contextOptions = (tls: TlsMaterial, cas: ClientCas | undefined) => ({
  cert: tls.cert,
  key: tls.key,
  minVersion: TLS_OPTIONS.minVersion,
  ...(cas === undefined ? {} : { ca: [...cas], secureOptions: FRESH_HANDSHAKES }),
});

/**
 * Makes the path of a socket free before the proxy listens there: removes the file of a socket on which
 * nobody answers, as a killed process leaves it behind. Throws listen_failed.
 */
export async function claimSocket(path: string, clock: Clock): Promise<void> {
  const { socketFileFresh } = clock.times;
  // If the path cannot be read, listening fails and says why.
  const found = await lstat(path, { bigint: true }).catch(() => undefined);
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
  // The program that has just created a socket file may not have begun to listen on it yet.
  const age = clock.now() - Number(found.mtimeMs);
  if (age < 0 || age >= socketFileFresh) return removeStale(path, found); // below 0: the clock was set back
  await pause(clock, socketFileFresh - age, undefined, 'waiting');
  return claimSocket(path, clock);
}

/**
 * Removes the file that was found stale, and no other: if two programs start at once, the second may find the
 * socket of the first in its place. No system call compares and removes in one step, so the file is moved
 * aside first, and moved back if it is another one. Throws listen_failed.
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

const NO_PORT =
  '--tls-client-ca needs a TCP port, and the socket that the proxy inherited is a file: let systemd listen on a port, ' +
  'or drop --tls-client-ca';

const NO_FILE =
  '--listen-address=unix:… keeps other users of this machine out, and the socket that the proxy inherited is a port: give the ' +
  'socket unit ListenStream= with a path in place of the port, or drop --listen-address';

/**
 * Opens the port for applications. Resolves with a listener that has the bound address. Throws listen_failed,
 * and config_invalid for an inherited socket that is a file in place of a port, or a port in place of a file.
 */
export async function listen(options: ListenerOptions, handle: RequestListener) {
  const { listenAddress: host, port: wanted, reusePort = false, socketFile, fd, tls, clock } = options;
  const { response = ServerResponse, clientCertificates } = options;
  const { headTimeout, headLook, keepAliveTimeout } = clock.times;
  const serverOptions = {
    ...SERVER_OPTIONS,
    headersTimeout: headTimeout,
    connectionsCheckingInterval: headLook,
    keepAliveTimeout,
    ServerResponse: response,
  };
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
  // For a connection on which nothing moves: the gateway ends it if its client takes nothing of a response.
  server.timeout = clock.times.readerWait;
  server.maxHeadersCount = 0; // Node would silently drop the rest; lib/gateway/admission.ts refuses too many
  const connections = trackConnections(server, { tls: tls !== undefined }, clock);
  const certified =
    clientCertificates && trackCertificates(server as HttpsServer, connections, clientCertificates);
  server.on('request', (req, res) => {
    // Node takes a request line without a version for HTTP/0.9, which has no headers and no error status.
    if (req.httpVersionMajor === 1) handle(req, res);
    else res.writeHead(505, MALFORMED).end();
  });
  server.on('checkExpectation', (_req, res) => res.writeHead(417, MALFORMED).end());
  // lib/gateway/receive.ts sends 100 Continue when it wants the body of an admitted request.
  server.on('checkContinue', (req, res) => server.emit('request', req, res));
  refuseMalformed(server, connections, clock, options.onWrongScheme);

  server.on('error', () => {}); // one connection that could not be accepted must not end the others
  const file = fd === undefined ? socketFile : undefined;
  const tcp = { host, port: wanted, reusePort };
  async function open(): Promise<void> {
    // The umask alone gives the file its mode, because chmod would follow a link that somebody has put in its
    // place.
    const umask = file && process.umask(0o777 & ~file.mode);
    server.listen(fd !== undefined ? { fd } : file !== undefined ? { path: file.path } : tcp);
    if (umask !== undefined) process.umask(umask);
    await once(server, 'listening').catch((cause) => {
      if (fd !== undefined) throw inheritedFailed(fd, cause);
      throw listenFailed(file?.path ?? `${host} port ${wanted}`, file?.path ?? wanted, cause);
    });
  }
  if (!reusePort) await open();

  const bound = reusePort ? { address: host, port: wanted } : server.address();
  const { address, port } = bound !== null && typeof bound === 'object' ? bound : { address: '', port: 0 };
  const refuse = (message: string): never => {
    server.close();
    throw new PrivatemodeError('config_invalid', message);
  };
  if (clientCertificates !== undefined && port === 0) refuse(NO_PORT); // it tells TLS connections apart
  if (socketFile !== undefined && port !== 0) refuse(NO_FILE);
  return {
    /** Empty for a socket in the file system. */
    address,
    /** 0 for a socket in the file system. */
    port,
    isOpen: (): boolean => server.listening,
    /** Opens the port of a listener with `reusePort`. Throws listen_failed. */
    open,
    /** Closes that port until the next `open`. Its connections stay. */
    shut: (): unknown => server.close(),
    /**
     * Replaces certificate and key for new connections. `cas`: the CAs of client certificates, if the
     * listener asks for some. If they are not the same as before, connections that showed a certificate end
     * after their responses.
     */
    replaceTls(next: TlsMaterial, cas?: ClientCas): void {
      (server as HttpsServer).setSecureContext(contextOptions(next, cas));
      if (cas !== undefined) certified?.replaced(cas);
    },
    /**
     * Still accepts connections, but tells clients by `Connection: close` in each response that the proxy
     * will not keep them.
     */
    announceEnd: connections.announceEnd,
    /**
     * Refuses new connections and closes idle ones. Resolves when the last connection has gone, so that
     * whatever waits for the end of a response has been notified. Node's server counts as closed before that:
     * as soon as its last connection has begun to close.
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
 * Has `take` read the certificate of each connection after its handshake. OpenSSL checks a certificate once,
 * against the CAs of the context with which the handshake began. When these CAs are replaced, the result
 * counts no more, and the connection ends after its responses.
 */
function trackCertificates(
  server: HttpsServer,
  connections: ConnectionTable,
  { cas, take, withdraw }: CertificateRequest,
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
