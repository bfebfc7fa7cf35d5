/**
 * A link with a round trip, in a process of its own: a TCP relay on loopback that passes every chunk on half
 * a round trip later. The operating system accepts connections at once, so what a client sends first waits
 * for the round trip that opening a connection would take. Chunks stay in order: behind one that stalls, as
 * after a lost packet, the others wait.
 */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface LinkProfile {
  /** ms. */
  readonly roundTrip: number;
  /** The share of chunks that stall, and for how many ms. */
  readonly stalls: number;
  readonly stall: number;
}

/** Passes chunks on, none before `openAt` (ms of performance.now()). */
function pass(from: Socket, to: Socket, { roundTrip, stalls, stall }: LinkProfile, openAt: number): void {
  let free = openAt;
  const later = (deliver: () => void): void => {
    const lost = Math.random() < stalls ? stall : 0;
    free = Math.max(free, performance.now()) + lost;
    setTimeout(deliver, free + roundTrip / 2 - performance.now());
  };
  from.on('data', (chunk: Buffer) => later(() => to.write(chunk)));
  from.once('end', () => later(() => to.end()));
  from.once('close', () => setTimeout(() => to.destroy(), roundTrip / 2 + stall));
  from.on('error', () => {});
}

if (import.meta.main) {
  const [port, profile] = process.argv.slice(2) as [string, string];
  const link = JSON.parse(profile) as LinkProfile;
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (near) => {
    const far = connect({ port: Number(port), host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
    pass(near, far, link, performance.now() + link.roundTrip);
    pass(far, near, link, 0);
  });
  server.listen(0, '127.0.0.1', () => {
    process.send?.({ type: 'ready', port: (server.address() as AddressInfo).port });
  });
  process.once('disconnect', () => process.exit());
  process.once('SIGTERM', () => process.exit());
}
