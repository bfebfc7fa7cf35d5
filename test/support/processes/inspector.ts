/** A TLS inspection appliance: it shows certificates of its own, and reads everything that passes. */
import { connect as connectPlain } from 'node:net';
import type { TestContext } from 'node:test';
import { connect, createServer, type TLSSocket } from 'node:tls';
import type { Simulator } from '../../../simulator/simulator.ts';
import { listening } from '../remote/loopback.ts';
import type { ServerCertificate } from '../remote/tls-authority.ts';

/**
 * Stands before `simulator`, whichever name it is asked for. `read` gives what it has read so far, of both
 * directions.
 */
export async function serveInspector(
  t: Pick<TestContext, 'after'>,
  certificate: ServerCertificate,
  simulator: Pick<Simulator, 'port' | 'caPem'>,
) {
  const chunks: Buffer[] = [];
  const server = createServer(certificate, (near: TLSSocket) => {
    const socket = connectPlain(simulator.port, '127.0.0.1');
    const far = connect({ socket, ca: simulator.caPem, servername: 'localhost' });
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('error', () => {});
      from.on('data', (chunk: Buffer) => chunks.push(chunk));
      from.pipe(to);
      from.once('close', () => to.destroy());
    }
  });
  server.on('tlsClientError', () => {});
  const { port } = await listening(t, server);
  return { port, read: (): Buffer => Buffer.concat(chunks) };
}
