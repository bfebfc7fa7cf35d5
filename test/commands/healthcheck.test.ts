import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer, type Server } from 'node:net';
import { describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { probe } from '../../lib/commands/ask-proxy.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { clockOf } from '../support/remote/fake-clock.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

/** What `use` gives for the port of a server on loopback, which runs meanwhile. */
async function during<T>(server: Server, use: (port: number) => Promise<T>): Promise<T> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  try {
    return await use((server.address() as AddressInfo).port);
  } finally {
    server.close();
  }
}

const WHICH = 'give the --listen-address and --port of the proxy';
const ready: RequestListener = (_req, res) => void res.writeHead(204).end();

describe('a health check', () => {
  const needsTls: RequestListener = (_req, res) =>
    void res.writeHead(400, { 'privatemode-proxy-error': 'malformed_request' }).end('{}');
  const certificate = createTestAuthority('test').issue(['proxy.example']);
  type Row = readonly [what: string, server: () => Server, tls: boolean, message: string, failure?: string];
  const rows: readonly Row[] = [
    [
      'speaks TLS to a proxy that serves HTTPS, whatever name the certificate has',
      () => createHttpsServer(certificate, ready),
      true,
      'ready',
    ],
    [
      'says to give --tls-cert-path if only the proxy speaks TLS',
      () => createServer(needsTls),
      false,
      'the proxy on WHERE serves HTTPS: give its --tls-cert-path here too',
    ],
    [
      'says to leave out --tls-cert-path if only the check speaks TLS',
      () => createServer(needsTls),
      true,
      `what listens on WHERE speaks no TLS; leave out --tls-cert-path, or ${WHICH}`,
    ],
    [
      'says which flags to give if another program listens',
      () => createTcpServer((socket) => socket.end()),
      false,
      `what listens on WHERE gave no answer (ECONNRESET); ${WHICH}`,
    ],
    [
      'gives up on a server that does not answer',
      () => createTcpServer((socket) => setTimeout(() => socket.destroy(), 1_000)),
      false,
      `what listens on WHERE gave no answer (no answer within 50 ms); ${WHICH}`,
    ],
  ];
  for (const [what, server, tls, message, failure] of rows) {
    it(what, async () => {
      const clock = /gives up/.test(what) ? clockOf({ healthcheckTimeout: 50 }) : systemClock;
      const [found, port] = await during(server(), async (port) => [
        await probe({ clock, listenAddress: '0.0.0.0', port, tls }),
        port,
      ]);
      assert.deepEqual(
        [found.ready, found.message, found.failure],
        [message === 'ready', message.replace('WHERE', `127.0.0.1 port ${port}`), failure],
      );
    });
  }
});

describe('healthcheck', () => {
  const asked = (answer: RequestListener, ...flags: string[]): Promise<Ran> =>
    during(createServer(answer), (port) => runCommand(['healthcheck', `--port=${port}`, ...flags]));

  it('asks /readyz on loopback if the proxy listens on all addresses, and exits with 0 for a 204', async () => {
    const paths: string[] = [];
    const { code, stdout } = await asked((req, res) => {
      paths.push(`${req.method} ${req.url}`);
      ready(req, res);
    });
    assert.deepEqual([code, stdout, paths], [0, 'ready\n', ['GET /readyz']]);
  });

  it('exits with 1 and the reason for another status than 204, also for a 200', async () => {
    const { code, stderr } = await asked((_req, res) =>
      res.writeHead(503).end('failing: manifest_mismatch\n'),
    );
    assert.deepEqual([code, stderr], [1, 'not ready (status 503): failing: manifest_mismatch\n']);
    assert.equal((await asked((_req, res) => res.end('hello'))).code, 1);
  });

  it('exits with 1 if nothing listens, and says which flags to give', async () => {
    const port = await during(createServer(), async (open) => open);
    const { code, stderr } = await runCommand([
      'healthcheck',
      '--listen-address=127.0.0.1',
      `--port=${port}`,
    ]);
    assert.deepEqual(
      [code, stderr],
      [1, `nothing listens on 127.0.0.1 port ${port} (ECONNREFUSED); ${WHICH}\n`],
    );
  });

  it('says that the port is the default one if none was given', async (t) => {
    const isTaken = await new Promise<boolean>((resolve) => {
      const socket = connect(8080, '127.0.0.2', () => resolve(true)).on('error', () => resolve(false));
      socket.once('connect', () => socket.destroy());
    });
    if (isTaken) return t.skip('NOT CHECKED: something on this machine listens on port 8080');
    const argv = ['healthcheck', '--listen-address=127.0.0.2', '--admin-address=127.0.0.1:19090'];
    const { code, stderr } = await runCommand(argv, { env: {} });
    assert.equal(code, 1);
    assert.equal(
      stderr,
      `nothing listens on 127.0.0.2 port 8080 (ECONNREFUSED); ${WHICH}; ` +
        '8080 is the default of --port, and only --listen-address, --port, --tls-cert-path are read here\n',
    );
  });

  it('accepts the flags of the proxy', async () =>
    assert.equal((await asked(ready, '--api-key=@gone', '--max-in-flight=2')).code, 0));
});
