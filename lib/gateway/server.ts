import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { PrivatemodeError } from '../errors.ts';
import type { TlsMaterial } from './tls.ts';

export type RequestHandler = (req: IncomingMessage, res: ServerResponse) => void;

export interface ListenerOptions {
  readonly listenAddress: string;
  readonly port: number;
  readonly tls: TlsMaterial | undefined;
  readonly maxBodyBytes: number;
  /** A socket that listens already (socket activation); address and port are its own then. */
  readonly fd: number | undefined;
}

export interface Listener {
  /** The address it is bound to. */
  readonly address: string;
  readonly port: number;
  replaceTls(material: TlsMaterial): void;
  /** Refuses new connections and closes idle ones; resolves when the last connection has gone. */
  drain(): Promise<void>;
  /** Ends every connection now. */
  destroy(): void;
}

/** Node's own limits fit browsers and small forms, not long uploads and streams that last minutes (trap 14). */
const SERVER_OPTIONS = {
  requestTimeout: 0, // the upload's minimum rate is watched by the exchange
  headersTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
  keepAliveTimeout: 75_000,
  maxHeaderSize: 64 * 1024,
  insecureHTTPParser: false,
  noDelay: true,
} as const;

/** Opens the application-facing port. Throws listen_failed. */
export async function listen(options: ListenerOptions, handle: RequestHandler): Promise<Listener> {
  const server: Server | HttpsServer =
    options.tls === undefined
      ? createHttpServer(SERVER_OPTIONS, handle)
      : createHttpsServer({ ...SERVER_OPTIONS, ...options.tls, minVersion: 'TLSv1.2' }, handle);
  server.on('checkContinue', (req, res) => {
    // Above the limit no 100 is sent: the body never travels (trap 13).
    if (Number(req.headers['content-length'] ?? 0) <= options.maxBodyBytes) res.writeContinue();
    handle(req, res);
  });
  server.on('clientError', refuseMalformed);

  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const reason = cause.code ?? cause.message;
      const where =
        options.fd === undefined
          ? `${options.listenAddress} port ${options.port}`
          : `the inherited socket ${options.fd}`;
      const words = `listening on ${where}: ${reason}`;
      reject(new PrivatemodeError('listen_failed', words, { cause }));
    });
    if (options.fd === undefined) server.listen(options.port, options.listenAddress, resolve);
    else server.listen({ fd: options.fd }, resolve);
  });

  const { address, port } = server.address() as AddressInfo;
  return {
    address,
    port,
    replaceTls(material) {
      (server as HttpsServer).setSecureContext({ ...material, minVersion: 'TLSv1.2' });
    },
    drain() {
      return new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
      });
    },
    destroy() {
      server.closeAllConnections();
    },
  };
}

/** Bytes that are no HTTP request get the status that says so, and nothing of them is kept or echoed. */
function refuseMalformed(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const status =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? '431 Request Header Fields Too Large'
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? '408 Request Timeout'
        : '400 Bad Request';
  socket.end(`HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
}
