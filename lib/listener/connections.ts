/** The connections of a listener: which are open, the responses under way on each, and how they end. */
import type { Server, ServerResponse } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { Server as NetServer, type Socket } from 'node:net';
import type { Clock } from '../clock.ts';

const MOST_AHEAD = 100; // the most requests that await earlier responses; more could fill the memory

/** Addresses that both sockets of a TLS connection share; nothing else shows that the two belong together. */
const addressesOf = ({ remoteAddress, remotePort, localAddress }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localAddress}`;

function sayClose(res: ServerResponse): void {
  if (!res.headersSent) res.setHeader('connection', 'close'); // Node then ends the connection
}

/**
 * Tracks every connection of `server`, because Node forgets some (docs/architecture.md H28). Must be called
 * before the server gets its request listener. A server with TLS must listen on a TCP port.
 */
export function trackConnections(server: Server, clock: Clock) {
  const isTls = server instanceof HttpsServer;
  const connections = new Map<Socket, Set<ServerResponse> | undefined>(); // undefined: no request yet
  const handshakes = new Map<string, Socket>(); // sockets in their TLS handshake, by their addresses
  let isAnnounced = false; // whether each further response ends its connection
  let isEnding = false; // whether responses under way also end their connections

  function add(socket: Socket): void {
    connections.set(socket, undefined);
    // On CONNECT Node removes its error listener, and an error without a listener would end the process.
    socket.on('error', () => {});
    socket.once('close', () => connections.delete(socket));
  }

  function addHandshake(accepted: Socket): void {
    const addresses = addressesOf(accepted);
    handshakes.set(addresses, accepted);
    accepted.once('close', () => handshakes.delete(addresses));
  }

  function addSecured(socket: Socket): void {
    const addresses = addressesOf(socket);
    const accepted = handshakes.get(addresses);
    if (accepted === undefined) return void socket.destroy(); // the client left (docs/architecture.md H43)
    handshakes.delete(addresses);
    add(socket);
    // The gateway emits `reset` where a response must break (docs/architecture.md H12).
    socket.on('reset', () => accepted.resetAndDestroy());
  }

  server.on('connection', isTls ? addHandshake : add);
  if (isTls) server.on('secureConnection', addSecured);
  server.on('request', ({ socket }, res) => {
    if (!connections.has(socket)) return; // the connection is gone already
    const responses = connections.get(socket) ?? new Set();
    connections.set(socket, responses.add(res));
    if (responses.size > MOST_AHEAD) return void socket.destroy();
    if (isAnnounced) sayClose(res);
    res.once('close', () => {
      responses.delete(res);
      if (isEnding && responses.size === 0) socket.destroySoon();
    });
  });

  /** From now on each response ends its connection, except a response whose head was sent. */
  function announceEnd(): void {
    isAnnounced = true;
    for (const responses of connections.values()) responses?.forEach(sayClose);
  }

  /** Refuses new connections by net's `close`: http's `close` would also end connections that seem idle. */
  const shut = (then?: () => void): unknown => NetServer.prototype.close.call(server, then);

  return {
    /** Whether the head of an unfinished response was sent on this connection. */
    hasBegunResponse: (socket: Socket): boolean =>
      [...(connections.get(socket) ?? [])].some(({ headersSent }) => headersSent),
    announceEnd,
    shut,
    /**
     * Refuses new connections, cuts handshakes, and ends each connection after its responses. A connection
     * without a request ends a second later: a request may be coming. Resolves when all are gone.
     */
    drain(): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      shut(resolve);
      announceEnd();
      isEnding = true;
      for (const [socket, responses] of connections) if (responses?.size === 0) socket.destroy();
      for (const accepted of handshakes.values()) accepted.destroy();
      clock.after(clock.times.firstRequest, () => {
        for (const [socket, responses] of connections) if (responses === undefined) socket.destroy();
      });
      return promise;
    },
    destroy: (): void => server.closeAllConnections(),
  };
}
