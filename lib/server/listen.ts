import { constants } from 'node:crypto';
import { once } from 'node:events';
import { Server as HttpServer, type RequestListener, ServerResponse } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
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

export interface ListenerOptions {
  readonly listenAddress: string;
  readonly port: number;
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

/** Opens the application-facing port; resolves with the address it is bound to. Throws listen_failed. */
export async function listen(options: ListenerOptions, handle: RequestListener) {
  const { listenAddress, fd, tls, headTimeout = 15_000 } = options;
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

  server.listen(fd === undefined ? { host: listenAddress, port: options.port } : { fd });
  await once(server, 'listening').catch((cause) => {
    const where = fd === undefined ? `${listenAddress} port ${options.port}` : `the inherited socket ${fd}`;
    throw listenFailed(where, options.port, cause);
  });
  server.on('error', () => {}); // one connection that could not be accepted must not end the others

  const { address, port } = server.address() as AddressInfo;
  return {
    address,
    port,
    /** `cas`: those of client certificates, where the listener asks for some. Connections that showed one end where these are others. */
    replaceTls(next: TlsMaterial, cas?: ClientCas): void {
      (server as HttpsServer).setSecureContext(contextOptions(next, cas));
      if (cas !== undefined) certified?.replaced(cas);
    },
    /** Refuses new connections and closes idle ones; resolves when the last connection has gone. */
    drain(): Promise<void> {
      connections.endAfterResponses();
      return new Promise((resolve) => server.close(() => resolve()));
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
