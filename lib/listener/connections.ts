/**
 * The connections of a listener: which are open, which responses are unfinished on each, and how they end.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type Clock, every } from '../clock.ts';

export type ConnectionTable = ReturnType<typeof trackConnections>;

const ignore = (): void => {};

/**
 * Tracks every connection of `server`, with the unfinished responses on it. It must be called before the
 * server gets its request listener. Node's own list of connections is not enough: it counts a response as
 * done while it is on its way to a slow reader, lacks connections in their TLS handshake, and keeps
 * connections that become idle after the server has closed.
 */
export function trackConnections(server: Server, { tls }: { readonly tls: boolean }, clock: Clock) {
  const { firstRequest, stuckWrite } = clock.times;
  const accepted = new Set<Socket>();
  const responses = new Map<Socket, Set<ServerResponse>>();
  const used = new WeakSet<Socket>(); // sockets that have had a request
  const ending = new WeakSet<Socket>(); // sockets that end after the responses under way on them
  let announced = false; // each further response ends its connection
  let draining = false; // connections without a response end too

  server.on('connection', (socket: Socket) => {
    accepted.add(socket);
    socket.once('close', () => accepted.delete(socket));
  });
  // With TLS, requests come on a TLS socket, which is another object than the accepted socket.
  server.on(tls ? 'secureConnection' : 'connection', (socket: Socket) => {
    responses.set(socket, new Set());
    // Node takes its own listener away with CONNECT, and an error without a listener ends the process.
    socket.on('error', ignore);
    socket.once('close', () => responses.delete(socket));
    if (draining) endWithoutRequest(socket);
    if (!tls) return;
    socket.on('reset', () => resetUnder(socket));
    socket.once('end', () => endIfStuck(socket));
  });
  const track = ({ socket }: IncomingMessage, res: ServerResponse): void => {
    const open = responses.get(socket);
    if (open === undefined) return; // the connection is gone already
    used.add(socket);
    open.add(res);
    if (announced || ending.has(socket)) res.setHeader('connection', 'close');
    res.once('close', () => {
      open.delete(res);
      if ((draining || ending.has(socket)) && open.size === 0) socket.destroySoon();
    });
  };
  server.on('request', track);
  const acceptedUnder = ({ remoteAddress, remotePort }: Socket): Socket | undefined =>
    remotePort === undefined
      ? undefined
      : [...accepted].find((raw) => raw.remotePort === remotePort && raw.remoteAddress === remoteAddress);

  /** Resets the connection under a TLS socket, when the gateway asks for it. */
  function resetUnder(socket: Socket): void {
    const raw = acceptedUnder(socket);
    if (raw === undefined) socket.destroy();
    else raw.resetAndDestroy();
  }

  /**
   * Ends a TLS connection that its client has ended, unless its writes make progress. Node takes some resets
   * for an orderly end. After such a reset it completes no write and does not report that the connection is
   * closed (docs/hazards.md 43).
   */
  function endIfStuck(socket: Socket): void {
    let left = socket.writableLength;
    const stop = every(clock, stuckWrite, () => {
      if (socket.writableLength >= left) socket.destroy();
      left = socket.writableLength;
    });
    socket.once('close', stop);
  }

  /** Ends a connection unless it has a response under way in a second. */
  function endWithoutRequest(socket: Socket): void {
    clock.after(firstRequest, () => responses.get(socket)?.size === 0 && socket.destroy());
  }

  /**
   * Ends the connections whose TLS handshake is not done. Those without a port to tell them apart end by
   * Node's time limit for a handshake.
   */
  function endHandshakes(): void {
    const secured = new Set([...responses.keys()].map(acceptedUnder));
    for (const raw of accepted) if (raw.remotePort !== undefined && !secured.has(raw)) raw.destroy();
  }

  /**
   * From now on each response whose head has not left yet says that its connection ends after it, and the
   * connection does end. Other connections stay open.
   */
  function announceEnd(): void {
    announced = true;
    for (const open of responses.values())
      for (const res of open) if (!res.headersSent) res.setHeader('connection', 'close');
  }
  return {
    /** Whether the head of an unfinished response has left on this connection. */
    hasBegunResponse: (socket: Socket): boolean =>
      [...(responses.get(socket) ?? [])].some(({ headersSent }) => headersSent),
    /**
     * The accepted connection under a TLS socket, by its remote address and port. Undefined if the connection
     * is gone, or has no remote port to tell it apart.
     */
    acceptedUnder,
    announceEnd,
    /**
     * From now on each connection ends after the response that is under way on it. A connection without a
     * response ends now. One that has had no request yet has 1 s for it, from the end of its TLS handshake. A
     * handshake that is under way has 1 s too.
     */
    endAfterResponses(): void {
      announceEnd();
      draining = true;
      for (const [socket, open] of responses) {
        if (open.size > 0) continue;
        if (used.has(socket)) socket.destroy();
        else endWithoutRequest(socket);
      }
      if (tls) clock.after(firstRequest, endHandshakes);
    },
    /** Ends this connection: at once if it is idle, else after the responses that are under way on it. */
    endAfterItsResponses(socket: Socket): void {
      const open = responses.get(socket);
      if (open === undefined || open.size === 0) socket.destroy();
      ending.add(socket);
      for (const res of open ?? []) if (!res.headersSent) res.setHeader('connection', 'close');
    },
    /** The connections whose TLS handshake is done; without TLS, all of them. */
    established: (): readonly Socket[] => [...responses.keys()],
    /** Resolves when all connections have closed, and with them the responses on them. */
    async closed(): Promise<void> {
      const open = [...accepted, ...responses.keys()];
      await Promise.all(open.map((socket) => new Promise((resolve) => socket.once('close', resolve))));
    },
    /** Ends all connections now, also those that have not finished their TLS handshake. */
    destroyAll(): void {
      for (const socket of accepted) socket.destroy();
    },
  };
}
