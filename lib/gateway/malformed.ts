import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { ConnectionTable } from './connections.ts';

const STATUS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: '413 Content Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};

/** ms for the refusal to arrive: closing over unread bytes would turn the close into a reset, which may overtake it. */
const LINGER = 1_000;

/**
 * Bytes that are no HTTP request get the status that says so, and nothing of them is kept or echoed. Where an answer is
 * on its way already, a status would end up in the middle of it: there the connection just ends.
 */
export function refuseMalformed(server: Server, connections: ConnectionTable): void {
  const refused = new WeakSet<Socket>();

  const refuse = (socket: Socket, status: string): void => {
    if (refused.has(socket)) return;
    refused.add(socket);
    if (!socket.writable || connections.hasBegunToAnswer(socket)) {
      socket.destroy();
      return;
    }
    socket.end(
      `HTTP/1.1 ${status}\r\nPrivatemode-Proxy-Error: malformed_request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
    );
    const impatience = setTimeout(() => socket.destroy(), LINGER);
    socket.once('close', () => clearTimeout(impatience));
  };

  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const code = error.code ?? '';
    if (code === 'HPE_CLOSED_CONNECTION') return; // bytes behind a last request are nobody's
    // Failed TLS handshakes and resets arrive here too; they leave nobody to answer.
    if (/^(HPE_|ERR_HTTP_)/.test(code)) refuse(socket as Socket, STATUS[code] ?? '400 Bad Request');
    else socket.destroy();
  });
  server.on('connect', (_req, socket) => refuse(socket as Socket, '405 Method Not Allowed'));
}
