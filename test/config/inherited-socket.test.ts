import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { inheritedSocket } from '../../lib/config/inherited-socket.ts';
import { refused } from '../support/doors/config.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Program, startProgram } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const PROGRAM = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts')];

describe('socket activation', () => {
  for (const [what, env, fd] of [
    ['the socket that was opened for this process', { LISTEN_FDS: '1', LISTEN_PID: '42' }, 3],
    ['none that was passed to another process', { LISTEN_FDS: '1', LISTEN_PID: '41' }, undefined],
    ['none that was passed to nobody', { LISTEN_FDS: '1' }, undefined],
    ['none if the number is 0', { LISTEN_FDS: '0', LISTEN_PID: '42' }, undefined],
    ['none if nothing was passed', {}, undefined],
  ] as const)
    it(`finds ${what}`, () => assert.equal(inheritedSocket(env, 42), fd));

  it('refuses a LISTEN_FDS that is neither 0 nor 1', () => {
    for (const count of ['2', '-1', '1x', '']) {
      refused(
        () => inheritedSocket({ LISTEN_FDS: count, LISTEN_PID: '42' }, 42),
        ['LISTEN_FDS', 'ListenStream'],
      );
    }
  });
});

describe('a proxy on a socket that systemd opened', { timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  /** The program on a socket at that host, which is closed here once the program has it. */
  async function started(t: TestContext, host: string, ...flags: string[]): Promise<Program> {
    const server = createServer().listen(0, host);
    await once(server, 'listening');
    const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
    const command = [...PROGRAM, ...remote.flags, '--api-key-fallback=always', ...flags];
    const starting = startProgram(command, remote.env, { socket: fd });
    server.close();
    const service = await starting;
    t.after(() => service.stop('SIGKILL'));
    return service;
  }

  it('warns that other machines can use it on 0.0.0.0, whatever --listen-address says, and ends without --shutdown-delay', async (t) => {
    const service = await started(t, '0.0.0.0', '--listen-address=127.0.0.1', '--shutdown-delay=60s');
    const reason = 'Other machines reach 0.0.0.0 without TLS'; // a line after the one that it listens
    await eventually(reason, () => service.log().includes(reason));
    // It says that it listens a moment before it heeds signals.
    assert.ok((await fetch(`${service.url}/healthz`)).ok);
    assert.equal(await service.stop(), 0);
    assert.doesNotMatch(service.log(), /Closing after the delay/);
  });

  it('does not start on a port if --listen-address names a socket file, which would keep other users out', async (t) => {
    const error: Error = await started(t, '127.0.0.1', '--listen-address=unix:/run/p.sock').then(
      () => assert.fail('it started'),
      (thrown) => thrown,
    );
    assert.match(error.message, /^the proxy did not start \(1\)/);
    const words = /^Error: --listen-address=unix:… keeps other users of this machine out .* ListenStream=/m;
    assert.match(error.message, words);
    assert.doesNotMatch(error.message, /Starting HTTP/);
  });
});
