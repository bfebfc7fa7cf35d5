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
 * Bytes of a plain HTTP request to the TLS port that are read before its connection closes: a client that writes its whole
 * request before it reads would otherwise meet a reset in place of the answer. Node keeps them in memory until the close,
 * so they are bounded, and so is the number of connections that wait at the same time.
 */
const LEFT_OVER = 8 * 1024 * 1024;
const MOST_WAITING = 8;
/** ms between two looks at how much was read. */
const LOOK = 20;

/** What a client took the port for. */
export type WrongScheme = 'http' | 'https';

const USE_HTTPS = JSON.stringify({
  error: {
    message: 'this port of privatemode-proxy speaks HTTPS: write https:// instead of http:// in the base URL',
    type: 'invalid_request_error',
    code: 'malformed_request',
  },
});
const PLAIN_ANSWER = `HTTP/1.1 400 Bad Request\r\nPrivatemode-Proxy-Error: malformed_request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(USE_HTTPS)}\r\n\r\n${USE_HTTPS}`;
/** First byte of a TLS record that carries a handshake; no HTTP method begins with it. */
const TLS_HANDSHAKE = 0x16;

/**
 * Bytes that are no HTTP request get the status that says so, and nothing of them is kept or echoed. Where an answer is
 * on its way already, a status would end up in the middle of it: there the connection just ends.
 */
export function refuseMalformed(
  server: Server,
  connections: ConnectionTable,
  onWrongScheme: (scheme: WrongScheme) => void = () => {},
): void {
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

  let waiting = 0;

  /** Answers plain HTTP on the connection under the TLS socket, which has no handshake to answer through. */
  const answerPlainly = (socket: Socket): void => {
    const raw = connections.acceptedUnder(socket);
    if (raw === undefined || !raw.writable) {
      socket.destroy();
      return;
    }
    raw.on('error', () => {});
    raw.end(PLAIN_ANSWER);
    if (waiting === MOST_WAITING) return; // the failed TLS socket takes the connection down with it
    waiting++;
    // It does so by one call of destroy, and this one is passed over.
    raw.destroy = () => {
      Reflect.deleteProperty(raw, 'destroy');
      return raw;
    };
    const finish = (): void => {
      Reflect.deleteProperty(raw, 'destroy');
      raw.destroy();
    };
    const impatience = setTimeout(finish, LINGER);
    const look = setInterval(() => {
      if (raw.bytesRead > LEFT_OVER) finish();
    }, LOOK);
    raw.once('close', () => {
      waiting--;
      clearTimeout(impatience);
      clearInterval(look);
    });
  };

  server.on('clientError', (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) => {
    const code = error.code ?? '';
    if (code === 'ERR_SSL_HTTP_REQUEST') {
      onWrongScheme('http');
      answerPlainly(socket as Socket);
      return;
    }
    if (code.startsWith('HPE_') && error.rawPacket?.[0] === TLS_HANDSHAKE) onWrongScheme('https');
    if (code === 'HPE_CLOSED_CONNECTION') return; // bytes behind a last request are nobody's
    // Failed TLS handshakes and resets arrive here too; they leave nobody to answer.
    if (/^(HPE_|ERR_HTTP_)/.test(code)) refuse(socket as Socket, STATUS[code] ?? '400 Bad Request');
    else socket.destroy();
  });
  server.on('connect', (_req, socket) => refuse(socket as Socket, '405 Method Not Allowed'));
}
