import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer as createTcpServer, type Server } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { type RunOptions, runCommand } from '../support/processes/command.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { listening } from '../support/remote/loopback.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

/** What the command says of that server, which listens on loopback until the test ends. */
async function asked(t: TestContext, server: Server, flags: readonly string[] = [], options?: RunOptions) {
  const { port } = await listening(t, server);
  return { port, ...(await runCommand(['healthcheck', `--port=${port}`, ...flags], options)) };
}

const ready: RequestListener = (_req, res) => void res.writeHead(204).end();
const TLS = ['--tls-cert-path=tls.crt', '--tls-key-path=tls.key'];

describe('healthcheck', () => {
  it('asks /readyz on loopback if the proxy listens on all addresses, and exits with 0 for a 204', async (t) => {
    const paths: string[] = [];
    const server = createServer((req, res) => {
      paths.push(`${req.method} ${req.url}`);
      ready(req, res);
    });
    const { code, stdout } = await asked(t, server, ['--listen-address=0.0.0.0']);
    assert.deepEqual([code, stdout, paths], [0, 'ready\n', ['GET /readyz']]);
  });

  it('speaks TLS to a proxy that serves HTTPS, whatever name the certificate has', async (t) => {
    const server = createHttpsServer(createTestAuthority('test').issue(['proxy.example']), ready);
    assert.equal((await asked(t, server, TLS)).code, 0);
  });

  it('asks at a socket file', async (t) => {
    const path = join(temporaryDirectory('healthcheck-'), 'proxy.sock');
    const server = createServer(ready);
    t.after(() => server.close());
    await once(server.listen(path), 'listening');
    assert.equal((await runCommand(['healthcheck', `--listen-address=unix:${path}`])).code, 0);
  });

  it('takes the flags of the proxy, and its exit code is 0 or 1 whatever they are', async (t) => {
    const flags = ['--api-key=@gone', '--max-in-flight=2', '--admin-address=127.0.0.1:1'];
    assert.equal((await asked(t, createServer(ready), flags)).code, 0);
  });

  it('exits with 1 if nothing listens', async () => {
    const port = await freePort();
    const { code, stderr } = await runCommand(['healthcheck', `--port=${port}`]);
    assert.equal(code, 1);
    assert.ok(stderr.startsWith(`no proxy answers on 127.0.0.1 port ${port} (ECONNREFUSED): `), stderr);
  });

  type Row = readonly [what: string, server: () => Server, why: string, flags?: readonly string[]];
  const rows: readonly Row[] = [
    ['another status', () => createServer((_req, res) => res.end('hello')), 'HTTP status 200'],
    ['TLS flags for a proxy without TLS', () => createServer(ready), 'EPROTO', TLS],
    ['another program', () => createTcpServer((socket) => socket.end()), 'ECONNRESET'],
    [
      'no answer',
      () => createTcpServer((socket) => setTimeout(() => socket.destroy(), 1_000)),
      'no answer within 50 ms',
    ],
  ];
  for (const [what, server, why, flags] of rows) {
    it(`exits with 1 for ${what}, and says which flags to give`, async (t) => {
      const options = what === 'no answer' ? { times: { healthcheckTimeout: 50 } } : {};
      const { code, port, stdout, stderr } = await asked(t, server(), flags, options);
      assert.deepEqual([code, stdout], [1, '']);
      assert.ok(stderr.startsWith(`no proxy answers on 127.0.0.1 port ${port} (${why}): give its --listen`));
    });
  }
});
