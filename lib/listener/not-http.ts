/**
 * How the listener refuses bytes that are no HTTP request, among them TLS on a plain port and plain HTTP on a
 * TLS port.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';
import type { ConnectionTable } from './connections.ts';

const STATUS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: '413 Content Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};

/** Advice for the reader of the log, by what the client speaks. */
const WRONG_SCHEME = {
  http: 'A client speaks plain HTTP to the HTTPS port: its base URL has to begin with https://',
  https:
    'A client speaks TLS to the plain HTTP port: its base URL has to begin with http://, or give --tls-cert-path and --tls-key-path',
} as const;

const errorBody = (message: string): string =>
  JSON.stringify({ error: { message, type: 'invalid_request_error', code: 'malformed_request' } });
const NO_REQUEST = errorBody(
  'this is no valid HTTP/1.1 request: a part of it is malformed, or its headers contradict each other about its length',
);
const NO_PROXY = errorBody(
  'this proxy makes no connections for others: it goes into the base URL of a client, not into its proxy settings',
);
const JSON_TYPE = 'Content-Type: application/json\r\n';
const refusal = (status: string, type = '', body = ''): string =>
  `HTTP/1.1 ${status}\r\nPrivatemode-Proxy-Error: malformed_request\r\nConnection: close\r\n${type}` +
  `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
const BAD_REQUEST = '400 Bad Request';
const NOT_ALLOWED = '405 Method Not Allowed';
const BODY: Readonly<Record<string, string>> = { [BAD_REQUEST]: NO_REQUEST, [NOT_ALLOWED]: NO_PROXY };
/** First byte of a TLS record that carries a handshake; no HTTP method begins with it. */
const TLS_HANDSHAKE = 0x16;

/**
 * Refuses bytes that are no HTTP request: sends a status, and neither keeps nor echoes any of the bytes. If a
 * response is already on its way, the status would end up in the middle of it, so the connection just ends.
 * Otherwise the connection closes a little later: closing with unread bytes sends a reset, which may overtake
 * the status.
 */
export function refuseMalformed(
  server: Server,
  connections: ConnectionTable,
  clock: Clock,
  onWrongScheme?: (advice: string) => void,
): void {
  const { strangerLinger, wrongSchemePause } = clock.times;
  let reportedAt = Number.NEGATIVE_INFINITY;
  const reportScheme = (scheme: keyof typeof WRONG_SCHEME): void => {
    const now = clock.monotonic();
    if (now - reportedAt < wrongSchemePause) return; // a client that retries must not fill the log
    reportedAt = now;
    onWrongScheme?.(WRONG_SCHEME[scheme]);
  };
  const refused = new WeakSet<Socket>();

  const refuse = (socket: Socket, status: string): void => {
    if (refused.has(socket)) return;
    refused.add(socket);
    if (!socket.writable || connections.hasBegunResponse(socket)) return void socket.destroy();
    const body = BODY[status];
    socket.end(body === undefined ? refusal(status) : refusal(status, JSON_TYPE, body));
    socket.once(
      'close',
      clock.after(strangerLinger, () => socket.destroy()),
    );
  };

  server.on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) => {
    const code = error.code ?? '';
    if (code === 'ERR_SSL_HTTP_REQUEST') reportScheme('http');
    if (code.startsWith('HPE_') && error.rawPacket?.[0] === TLS_HANDSHAKE) reportScheme('https');
    if (code === 'HPE_CLOSED_CONNECTION') return; // bytes after the last request belong to no request
    // Failed TLS handshakes and resets arrive here too; no client is left to respond to.
    if (/^(HPE_|ERR_HTTP_)/.test(code)) refuse(socket as Socket, STATUS[code] ?? BAD_REQUEST);
    else socket.destroy();
  });
  server.on('connect', (_req, socket) => refuse(socket as Socket, NOT_ALLOWED));
}
