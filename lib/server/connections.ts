import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export type ConnectionTable = ReturnType<typeof trackConnections>;

/** ms that a connection without a request yet gets once the server closes: its client has just connected to send one. */
const FIRST_REQUEST = 1_000;

/**
 * Every connection of `server`, with the responses that are not finished on it; must be called before the server gets its
 * request listener. Node's own list is not enough: it counts a response as done while it is on its way to a slow reader, lacks
 * connections in their TLS handshake, and keeps those that become idle after the server has closed.
 */
export function trackConnections(server: Server, { tls }: { readonly tls: boolean }) {
  const accepted = new Set<Socket>();
  const responses = new Map<Socket, Set<ServerResponse>>();
  const used = new WeakSet<Socket>(); // sockets that have had a request
  const ending = new WeakSet<Socket>(); // sockets that end after the responses under way on them
  let announced = false; // responses end their connections
  let draining = false; // and so does having none

  server.on('connection', (socket: Socket) => {
    accepted.add(socket);
    socket.once('close', () => accepted.delete(socket));
  });
  // With TLS, requests come on other sockets than those accepted.
  server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    responses.set(socket, new Set());
    socket.once('close', () => responses.delete(socket));
  });
  const track = ({ socket }: IncomingMessage, res: ServerResponse): void => {
    const open = responses.get(socket);
    if (open === undefined) return; // gone already
    used.add(socket);
    open.add(res);
    if (announced || ending.has(socket)) res.setHeader('connection', 'close');
    res.once('close', () => {
      open.delete(res);
      if ((draining || ending.has(socket)) && open.size === 0) socket.destroySoon();
    });
  };
  server.on('request', track);
  /** From now on each response whose head has not left says that its connection ends after it, as it does; others stay open. */
  function announceEnd(): void {
    announced = true;
    for (const open of responses.values())
      for (const res of open) if (!res.headersSent) res.setHeader('connection', 'close');
  }
  return {
    /** Whether the head of a response has left on this connection. */
    hasBegunResponse: (socket: Socket): boolean =>
      [...(responses.get(socket) ?? [])].some(({ headersSent }) => headersSent),
    /** The connection under a TLS socket whose handshake failed; undefined where it is gone or cannot be told apart. */
    acceptedUnder: ({ remoteAddress, remotePort }: Socket): Socket | undefined =>
      remotePort === undefined
        ? undefined
        : [...accepted].find((raw) => raw.remotePort === remotePort && raw.remoteAddress === remoteAddress),
    announceEnd,
    /** From now on each connection ends after the response that is under way on it, and now where there is none. */
    endAfterResponses(): void {
      announceEnd();
      draining = true;
      for (const [socket, open] of responses) {
        if (open.size > 0) continue;
        if (used.has(socket)) socket.destroy();
        else setTimeout(() => open.size === 0 && socket.destroy(), FIRST_REQUEST);
      }
    },
    /** Ends this connection: at once where it idles, else after the responses that are under way on it. */
    endAfterItsResponses(socket: Socket): void {
      const open = responses.get(socket);
      if (open === undefined || open.size === 0) socket.destroy();
      ending.add(socket);
      for (const res of open ?? []) if (!res.headersSent) res.setHeader('connection', 'close');
    },
    /** Those whose handshake, if they need one, is done. */
    established: (): readonly Socket[] => [...responses.keys()],
    /** Resolves when all of them have closed, and with them the responses on them. */
    async closed(): Promise<void> {
      const open = [...accepted, ...responses.keys()];
      await Promise.all(open.map((socket) => new Promise((resolve) => socket.once('close', resolve))));
    },
    /** Ends all of them now, also those that have not finished their TLS handshake. */
    destroyAll(): void {
      for (const socket of accepted) socket.destroy();
    },
  };
}
