/** The connections of a listener: which are open, which responses are under way on each, and how they end. */
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../clock.ts';

export type ConnectionTable = ReturnType<typeof trackConnections>;

/** Both sockets of a TLS connection have these, and nothing else shows that they belong together. */
const addressesOf = ({ remoteAddress, remotePort, localAddress }: Socket): string =>
  `${remoteAddress} ${remotePort} ${localAddress}`;

/** Says in the response that its connection ends after it, upon which Node ends it. */
function sayClose(res: ServerResponse): void {
  if (!res.headersSent) res.setHeader('connection', 'close');
}

/**
 * Tracks every connection of `server`, with the responses under way on it. It must be called before the
 * server gets its request listener, and with `tls` only for a TCP port. Node's own list of connections is not
 * enough (docs/hazards.md 28).
 */
export function trackConnections(server: Server, { tls }: { readonly tls: boolean }, clock: Clock) {
  const { firstRequest } = clock.times;
  const connections = new Map<Socket, Set<ServerResponse>>();
  const handshakes = new Map<string, Socket>(); // accepted sockets whose TLS handshake is under way
  const used = new WeakSet<Socket>(); // sockets that have had a request
  const ending = new WeakSet<Socket>(); // sockets that end after the responses under way on them
  let announced = false; // each further response ends its connection

  function add(socket: Socket): void {
    connections.set(socket, new Set());
    // Node takes its own listener away with CONNECT, and an error without a listener ends the process.
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
    // Its client has gone, and Node may never notice (docs/hazards.md 43).
    if (accepted === undefined) return void socket.destroy();
    handshakes.delete(addresses);
    add(socket);
    // The gateway asks for it, because `resetAndDestroy` of a TLS socket throws (docs/hazards.md 12).
    socket.on('reset', () => accepted.resetAndDestroy());
  }

  server.on('connection', tls ? addHandshake : add);
  if (tls) server.on('secureConnection', addSecured);
  server.on('request', ({ socket }, res) => {
    const responses = connections.get(socket);
    if (responses === undefined) return; // the connection is gone already
    used.add(socket);
    responses.add(res);
    if (announced || ending.has(socket)) sayClose(res);
    res.once('close', () => {
      responses.delete(res);
      if (ending.has(socket) && responses.size === 0) socket.destroySoon();
    });
  });

  return {
    /** Whether the head of an unfinished response has left on this connection. */
    hasBegunResponse: (socket: Socket): boolean =>
      [...(connections.get(socket) ?? [])].some(({ headersSent }) => headersSent),
    /** From now on each response whose head has not left yet ends its connection. The others stay open. */
    announceEnd(): void {
      announced = true;
      for (const responses of connections.values()) responses.forEach(sayClose);
    },
    /**
     * Ends each open connection after the responses that are under way on it: at once if there are none, but
     * a second later if it has had no request yet, since one may be on its way. Cuts TLS handshakes. `each`
     * gets each connection.
     */
    endOpen(each?: (socket: Socket) => void): void {
      for (const [socket, responses] of connections) {
        each?.(socket);
        ending.add(socket);
        responses.forEach(sayClose);
        const endIfIdle = (): void => {
          if (responses.size === 0) socket.destroy();
        };
        if (used.has(socket)) endIfIdle();
        else clock.after(firstRequest, endIfIdle);
      }
      for (const accepted of handshakes.values()) accepted.destroy();
    },
  };
}
