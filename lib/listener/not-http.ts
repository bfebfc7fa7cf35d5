/** How the listener refuses bytes that are no HTTP request. TLS on a port for plain HTTP is an example. */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';

const STATUS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: '413 Content Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};
const NO_REQUEST =
  'this is no valid HTTP/1.1 request: a part of it is missing, malformed or too large, or its headers contradict each other about its length';
const NO_PROXY =
  'this proxy makes no connections for others: it goes into the base URL of a client, not into its proxy settings';
const HTTP_ON_TLS = 'A client speaks plain HTTP to the HTTPS port: its base URL has to begin with https://';
const TLS_ON_HTTP =
  'A client speaks TLS to the plain HTTP port: its base URL has to begin with http://, or give --tls-cert-path and --tls-key-path';
const TLS_HANDSHAKE = 0x16; // the first byte of a TLS record with a handshake, and of no HTTP method

/**
 * Sends an error status in reply to bytes that are no HTTP request, and neither keeps nor echoes the bytes.
 * `hasBegunResponse` is that of trackConnections. `onWrongScheme` gets advice to log, at most once a minute.
 */
export function refuseMalformed(
  server: Server,
  hasBegunResponse: (socket: Socket) => boolean,
  clock: Clock,
  onWrongScheme: (advice: string) => void = () => {},
): void {
  let reportedAt = Number.NEGATIVE_INFINITY;
  const report = (advice: string): void => {
    if (clock.monotonic() - reportedAt < clock.times.wrongSchemePause) return; // such clients repeat requests
    reportedAt = clock.monotonic();
    onWrongScheme(advice);
  };

  const refuse = (socket: Socket, status: string, message: string): void => {
    if (socket.writableEnded) return; // the connection is already ending
    // While a response is on its way, the status would end up in the middle of that response.
    if (!socket.writable || hasBegunResponse(socket)) return void socket.destroy();
    const code = 'malformed_request';
    const body = JSON.stringify({ error: { message, type: 'invalid_request_error', code } });
    const head = `HTTP/1.1 ${status}\r\nPrivatemode-Proxy-Error: ${code}\r\nConnection: close\r\n`;
    const about = `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n`;
    socket.end(head + about + body);
    const cut = (): unknown => socket.destroy(); // later, for the reason in docs/architecture.md H13
    socket.once('close', clock.after(clock.times.strangerLinger, cut));
  };

  server.on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) => {
    const { code = '', rawPacket } = error;
    if (code === 'ERR_SSL_HTTP_REQUEST') report(HTTP_ON_TLS);
    if (code.startsWith('HPE_') && rawPacket?.[0] === TLS_HANDSHAKE) report(TLS_ON_HTTP);
    if (code === 'HPE_CLOSED_CONNECTION') return; // bytes after the last request belong to no request
    // `clientError` also reports failed TLS handshakes and resets, after which no client is left.
    if (!/^(HPE_|ERR_HTTP_)/.test(code)) socket.destroy();
    else refuse(socket as Socket, STATUS[code] ?? '400 Bad Request', NO_REQUEST);
  });
  server.on('connect', (_req, socket) => refuse(socket as Socket, '405 Method Not Allowed', NO_PROXY));
}
