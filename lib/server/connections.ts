import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Every connection of a server, and what is being answered on it. */
export interface ConnectionTable {
  /** Whether an answer has begun to leave on this connection. */
  hasBegunToAnswer(socket: Socket): boolean;
  /** The connection under a TLS socket whose handshake failed; undefined where it is gone or cannot be told apart. */
  acceptedUnder(socket: Socket): Socket | undefined;
  /** From now on an answer is the last of its connection. */
  endAfterAnswers(): void;
  /** Ends all of them now, also those that have not finished their TLS handshake. */
  destroyAll(): void;
}

/**
 * ms that a connection gets for its first request once the server closes. Its client has just connected and is about to
 * send it, or has; to end it now would refuse a request that the server could still answer.
 */
const FIRST_REQUEST = 1_000;

/**
 * Keeps account of `server`'s connections; to be called before it gets its request listener. Node's own account is not
 * enough: it takes an answer for done that is ended but still on its way to a slow reader, it knows no connection
 * in its TLS handshake, and it keeps one that becomes idle after the server has closed.
 */
export function trackConnections(server: Server, { tls }: { readonly tls: boolean }): ConnectionTable {
  const accepted = new Set<Socket>();
  const answers = new Map<Socket, Set<ServerResponse>>();
  /** Those that have had a request. */
  const used = new WeakSet<Socket>();
  let draining = false;

  server.on('connection', (socket: Socket) => {
    accepted.add(socket);
    socket.once('close', () => accepted.delete(socket));
  });
  // With TLS, requests come on other sockets than those accepted.
  server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    answers.set(socket, new Set());
    socket.once('close', () => answers.delete(socket));
  });
  const track = ({ socket }: IncomingMessage, res: ServerResponse): void => {
    const open = answers.get(socket);
    if (open === undefined) return; // gone already
    used.add(socket);
    open.add(res);
    if (draining) res.setHeader('connection', 'close');
    res.once('close', () => {
      open.delete(res);
      if (draining && open.size === 0) socket.destroySoon();
    });
  };
  server.on('request', track);
  server.on('checkContinue', track);
  // Asked for by close().
  server.closeIdleConnections = () => {
    for (const [socket, open] of answers) {
      if (open.size > 0) continue;
      if (used.has(socket)) socket.destroy();
      else setTimeout(() => open.size === 0 && socket.destroy(), FIRST_REQUEST);
    }
  };

  return {
    hasBegunToAnswer: (socket) => [...(answers.get(socket) ?? [])].some(({ headersSent }) => headersSent),
    acceptedUnder: ({ remoteAddress, remotePort }) =>
      remotePort === undefined
        ? undefined
        : [...accepted].find((raw) => raw.remotePort === remotePort && raw.remoteAddress === remoteAddress),
    endAfterAnswers() {
      draining = true;
      for (const open of answers.values()) {
        for (const res of open) if (!res.headersSent) res.setHeader('connection', 'close');
      }
    },
    destroyAll() {
      for (const socket of accepted) socket.destroy();
    },
  };
}
