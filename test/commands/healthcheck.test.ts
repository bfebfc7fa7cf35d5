import assert from 'node:assert/strict';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { type Ran, runCommand } from '../support/processes/command.ts';

describe('healthcheck:', () => {
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

  it('/readyz is asked on loopback where the proxy listens everywhere, and 204 is exit code 0', async () => {
    const paths: string[] = [];
    const { code, stdout } = await asked((req, res) => {
      paths.push(`${req.method} ${req.url}`);
      res.writeHead(204).end();
    });
    assert.deepEqual([code, stdout, paths], [0, 'ready\n', ['GET /readyz']]);
  });

  it('another status than 204 is exit code 1 with the reason', async () => {
    const { code, stderr } = await asked((_req, res) =>
      res.writeHead(503).end('failing: manifest_mismatch\n'),
    );
    assert.equal(code, 1);
    assert.equal(stderr, 'not ready (status 503): failing: manifest_mismatch\n');
  });

  it('a 200 of some other server is not ready', async () => {
    assert.equal((await asked((_req, res) => res.end('hello'))).code, 1);
  });

  it('nobody listening is exit code 1', async () => {
    const { code, stderr } = await asked(undefined, '--listen-address=127.0.0.1');
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^nothing listens on 127\.0\.0\.1 port \d+ \(ECONNREFUSED\); give the --listen-address and --port of the proxy\n$/,
    );
  });

  it('the flags of the proxy are taken', async () => {
    assert.equal(
      (await asked((_req, res) => res.writeHead(204).end(), '--api-key=@gone', '--workers=2')).code,
      0,
    );
  });
});
