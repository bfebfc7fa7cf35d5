/** A TLS inspection appliance: it shows certificates of its own, and reads everything that passes. */
import { type AddressInfo, connect as connectPlain, type Socket } from 'node:net';
import type { TestContext } from 'node:test';
import { connect, createServer, type TLSSocket } from 'node:tls';
import type { Simulator } from '../../../simulator/simulator.ts';
import type { ServerCertificate } from '../remote/tls-authority.ts';

export interface Inspector {
  readonly port: number;
  /** TLS connections it accepted. */
  readonly connections: { readonly total: number };
  /** Everything it has read so far, of both directions. */
  read(): Buffer;
  /** Ends all connections, as an appliance does with idle ones. */
  drop(): void;
}

/** Stands before `simulator`, whichever name it is asked for. */
export async function serveInspector(
  t: Pick<TestContext, 'after'>,
  certificate: ServerCertificate,
  simulator: Pick<Simulator, 'port' | 'caPem'>,
): Promise<Inspector> {
  const connections = { total: 0 };
  const chunks: Buffer[] = [];
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  };
  const drop = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  const server = createServer(certificate, (near: TLSSocket) => {
    connections.total++;
    const far = connect({
      socket: connectPlain(simulator.port, '127.0.0.1'),
      ca: simulator.caPem,
      servername: 'localhost',
    });
    keep(far);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('data', (chunk: Buffer) => chunks.push(chunk));
      from.pipe(to);
      from.once('close', () => to.destroy());
    }
  });
  server.on('connection', keep);
  server.on('tlsClientError', () => {});
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    drop();
    return new Promise((resolve) => server.close(resolve));
  });
  return {
    port: (server.address() as AddressInfo).port,
    connections,
    read: () => Buffer.concat(chunks),
    drop,
  };
}
