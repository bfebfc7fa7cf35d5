/** Opens the listener for applications: on a port, a socket file or an inherited socket. */
import { once } from 'node:events';
import { lstat, rm } from 'node:fs/promises';
import { Server as HttpServer, type RequestListener, ServerResponse } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { createConnection } from 'node:net';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { trackConnections } from './connections.ts';
import { refuseMalformed } from './not-http.ts';
import type { TlsMaterial } from './tls.ts';

export interface ListenerOptions {
  /** `reusePort`: others may listen on the port (SO_REUSEPORT; Linux only). The port is closed at first. */
  readonly at:
    | { readonly host: string; readonly port: number; readonly reusePort?: boolean }
    | { readonly path: string }; // a socket file (see `claimSocket`)
  /** A descriptor of the same kind as `at`. It listens already (socket activation), and replaces `at`. */
  readonly fd?: number | undefined;
  readonly tls?: TlsMaterial | undefined;
  readonly response?: typeof ServerResponse;
  readonly onWrongScheme?: (advice: string) => void; // called by refuseMalformed
  readonly clock: Clock;
}

export type Listener = Awaited<ReturnType<typeof listen>>;
const ERROR = { 'privatemode-proxy-error': 'malformed_request', connection: 'close', 'content-length': 0 };
const contextOptions = ({ cert, key }: TlsMaterial) => ({ cert, key, minVersion: 'TLSv1.2' as const });

function createServer({ tls, response = ServerResponse, clock: { times } }: ListenerOptions) {
  const options = {
    requestTimeout: 0, // lib/gateway/receive.ts enforces a minimum rate instead
    headersTimeout: times.headTimeout,
    connectionsCheckingInterval: times.headLook,
    keepAliveTimeout: times.keepAliveTimeout,
    maxHeaderSize: 64 * 1024,
    insecureHTTPParser: false,
    requireHostHeader: false, // lib/gateway/admission.ts refuses a missing Host, in the format of the API
    ServerResponse: response,
  };
  const server: HttpServer | HttpsServer =
    tls === undefined
      ? new HttpServer(options)
      : new HttpsServer({ ...options, ...contextOptions(tls), handshakeTimeout: times.headTimeout });
  server.timeout = times.readerWait; // the gateway ends a connection whose client reads nothing
  server.maxHeadersCount = 0; // else Node drops headers silently; lib/gateway/admission.ts refuses too many
  server.on('error', () => {}); // one connection that could not be accepted must not end the others
  return server;
}

/** Removes a socket file that a killed process left behind. Other files stay, and make listening fail. */
export async function claimSocket(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (!found?.isSocket()) return;
  const connection = createConnection(path);
  const failure = await once(connection, 'connect').catch(({ code }) => code);
  connection.destroy();
  if (failure === 'ECONNREFUSED') await rm(path, { force: true }).catch(() => {});
}

export const WHO_LISTENS = (port: number): string =>
  process.platform === 'win32' ? `netstat -ano | findstr :${port}` : `lsof -nP -iTCP:${port} -sTCP:LISTEN`;

/** The error listen_failed. `where` is like `127.0.0.1 port 8080`. `port` is undefined for a socket file. */
export function listenFailed(where: string, port: number | undefined, cause: Error): PrivatemodeError {
  const isTaken = port !== undefined && 'code' in cause && cause.code === 'EADDRINUSE';
  const taken = 'EADDRINUSE; another program has the port, and this shows which:';
  const why = isTaken ? `${taken} ${WHO_LISTENS(port)}` : cause.message;
  return new PrivatemodeError('listen_failed', `listening on ${where}: ${why}`, { cause });
}

const OTHER_SOCKET =
  '--listen-address=unix:… keeps other users of this machine out and --tls-cert-path is for a port, but the socket that systemd opened is of the other kind: change the ListenStream= of its unit, or drop the flag';

/** Opens the port for applications. Throws listen_failed; config_invalid if `fd` and `at` differ in kind. */
export async function listen(options: ListenerOptions, handle: RequestListener) {
  const { at, fd, tls, clock } = options;
  const server = createServer(options);
  const connections = trackConnections(server, clock);
  server.on('request', (req, res) => {
    // Node reads a request line without a version as HTTP/0.9 (docs/architecture.md H27).
    if (req.httpVersionMajor !== 1) return void res.writeHead(505, ERROR).end();
    // Clients may pipeline requests (RFC 9112 9.3.2), so a response waits for its socket until its turn.
    if (res.socket !== null) handle(req, res);
    else res.once('socket', () => setImmediate(() => res.destroyed || handle(req, res)));
  });
  server.on('checkExpectation', (_req, res) => res.writeHead(417, ERROR).end());
  // lib/gateway/receive.ts sends 100 Continue when it wants the body of an admitted request.
  server.on('checkContinue', (req, res) => server.emit('request', req, res));
  refuseMalformed(server, connections.hasBegunResponse, clock, options.onWrongScheme);

  async function open(): Promise<void> {
    if (fd !== undefined) server.listen({ fd });
    else if ('host' in at) server.listen(at);
    else {
      // The umask gives the socket file mode 0600 at once. A later chmod would leave a gap, and follow links.
      const umask = process.umask(0o177);
      server.listen(at);
      process.umask(umask);
    }
    await once(server, 'listening').catch((cause) => {
      if (fd !== undefined) throw listenFailed('the socket of systemd', undefined, cause);
      const directory = 'its directory must exist, and this user be able to write there'; // libuv says EACCES
      if ('path' in at) throw listenFailed(`${at.path} (${directory})`, undefined, cause);
      throw listenFailed(`${at.host} port ${at.port}`, at.port, cause);
    });
  }
  const isShared = 'host' in at && at.reusePort === true;
  if (!isShared) await open();
  const bound = isShared ? { address: at.host, port: at.port } : server.address();
  const { address, port } = bound !== null && typeof bound === 'object' ? bound : { address: '', port: 0 };
  if (port === 0 ? tls : 'path' in at) {
    server.close();
    throw new PrivatemodeError('config_invalid', OTHER_SOCKET);
  }
  return {
    ...connections,
    /** The address. For a socket file, the address is empty and `port` is 0. */
    address,
    port,
    isOpen: (): boolean => server.listening,
    /** Opens the port of a listener with `reusePort`. Throws listen_failed. */
    open,
    replaceTls: (next: TlsMaterial): void => (server as HttpsServer).setSecureContext(contextOptions(next)),
  };
}
