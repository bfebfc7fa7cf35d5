import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { describe, it } from 'node:test';
import { type Ran, runCommand } from '../support/processes/command.ts';

describe('healthcheck', () => {
  async function asked(answer: RequestListener | undefined, ...flags: string[]): Promise<Ran> {
    const server = createServer(answer);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const stop = () => new Promise((resolve) => server.close(resolve));
    if (answer === undefined) await stop();
    const outcome = await runCommand(['healthcheck', `--port=${port}`, ...flags]);
    if (answer !== undefined) await stop();
    return outcome;
  }

  it('asks /readyz on loopback if the proxy listens on all addresses, and exits with 0 for a 204', async () => {
    const paths: string[] = [];
    const { code, stdout } = await asked((req, res) => {
      paths.push(`${req.method} ${req.url}`);
      res.writeHead(204).end();
    });
    assert.deepEqual([code, stdout, paths], [0, 'ready\n', ['GET /readyz']]);
  });

  it('exits with 1 and the reason for another status than 204', async () => {
    const { code, stderr } = await asked((_req, res) =>
      res.writeHead(503).end('failing: manifest_mismatch\n'),
    );
    assert.equal(code, 1);
    assert.equal(stderr, 'not ready (status 503): failing: manifest_mismatch\n');
  });

  it('exits with 1 if another server answers with 200', async () => {
    assert.equal((await asked((_req, res) => res.end('hello'))).code, 1);
  });

  it('exits with 1 if nothing listens, and says which flags to give', async () => {
    const { code, stderr } = await asked(undefined, '--listen-address=127.0.0.1');
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^nothing listens on 127\.0\.0\.1 port \d+ \(ECONNREFUSED\); give the --listen-address and --port of the proxy\n$/,
    );
  });

  it('says that the port is the default one if none was given', async (t) => {
    const isTaken = await new Promise<boolean>((resolve) => {
      const socket = connect(8080, '127.0.0.2', () => resolve(true)).on('error', () => resolve(false));
      socket.once('connect', () => socket.destroy());
    });
    if (isTaken) return t.skip('NOT CHECKED: something on this machine listens on port 8080');
    const { code, stderr } = await runCommand(
      ['healthcheck', '--listen-address=127.0.0.2', '--admin-address=127.0.0.1:19090'],
      { env: {} },
    );
    assert.equal(code, 1);
    assert.equal(
      stderr,
      'nothing listens on 127.0.0.2 port 8080 (ECONNREFUSED); give the --listen-address and --port of the proxy; ' +
        '8080 is the default of --port, and only --listen-address, --port, --tls-cert-path are read here\n',
    );
  });

  it('accepts the flags of the proxy', async () => {
    assert.equal(
      (await asked((_req, res) => res.writeHead(204).end(), '--api-key=@gone', '--max-in-flight=2')).code,
      0,
    );
  });
});
