import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { inheritedSocket } from '../../lib/config/inherited-socket.ts';
import { refused } from '../support/doors/config.ts';
import { createActivatedService } from '../support/processes/activated-service.ts';
import { cleanEnvironment } from '../support/processes/program.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const PROGRAM = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts')];

describe('socket activation', () => {
  it('finds the socket that was opened for this process', () => {
    assert.equal(inheritedSocket({ LISTEN_FDS: '1', LISTEN_PID: '42' }, 42), 3);
  });

  it('ignores a socket that was passed to another process', () => {
    assert.equal(inheritedSocket({ LISTEN_FDS: '1', LISTEN_PID: '41' }, 42), undefined);
    assert.equal(inheritedSocket({ LISTEN_FDS: '1' }, 42), undefined);
  });

  it('finds no socket if none was passed', () => {
    assert.equal(inheritedSocket({}, 42), undefined);
    assert.equal(inheritedSocket({ LISTEN_PID: '42' }, 42), undefined);
    assert.equal(inheritedSocket({ LISTEN_FDS: '0', LISTEN_PID: '42' }, 42), undefined);
  });

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

  for (const workers of [1, 2])
    for (const [host, isOpen] of [
      ['0.0.0.0', true],
      ['127.0.0.1', false],
    ] as const)
      it(`${isOpen ? 'warns' : 'does not warn'} that other machines can use it on ${host}, whatever --listen-address says (workers: ${workers})`, async (t) => {
        const flags = [
          ...[...remote.flags, `--listen-address=${isOpen ? '127.0.0.1' : '0.0.0.0'}`],
          ...['--api-key-fallback=always', `--workers=${workers}`],
        ];
        const service = await createActivatedService([...PROGRAM, ...flags], remote.env, host);
        t.after(() => service.close());
        await service.start();
        const [reason] = /(?<=condition=proxy_open reason=")[^:]+/.exec(service.log()) ?? [];
        const opened = isOpen ? 'the socket of systemd on 0.0.0.0 without TLS' : undefined;
        assert.equal(reason, opened, service.log());
        assert.equal(service.log().includes('have no effect on the socket that systemd has opened'), !isOpen);
        await service.stop();
      });

  /** Runs the proxy, to its end, on that descriptor in place of a socket. */
  async function ends(fd: number, ...flags: string[]) {
    const child = spawn(
      'sh',
      [
        '-c',
        'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"',
        ...['sh', ...PROGRAM, ...remote.flags, '--api-key-fallback=always', ...flags],
      ],
      { env: cleanEnvironment(remote.env), stdio: ['ignore', 'ignore', 'pipe', fd] },
    );
    let log = '';
    child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      log += text;
      if (log.includes('Starting HTTP')) child.kill('SIGKILL'); // it would not end
    });
    const [code] = await once(child, 'close');
    return { code, log };
  }

  it('does not start on a port if --listen-address names a socket file, which would keep other users out', async (t) => {
    const server = createServer().listen(0, '127.0.0.1');
    t.after(() => server.close());
    await once(server, 'listening');
    const { fd } = (server as unknown as { readonly _handle: { readonly fd: number } })._handle;
    for (const workers of [1, 2]) {
      const { code, log } = await ends(fd, '--listen-address=unix:/run/p.sock', `--workers=${workers}`);
      assert.equal(code, 1, log);
      assert.match(
        log,
        /^Error: --listen-address=unix:… keeps other users of this machine out, .* ListenStream=/m,
      );
      assert.doesNotMatch(log, /Starting HTTP/);
    }
  });

  it('names the socket unit, and no flag, if it cannot listen on what it inherited', async () => {
    const { code, log } = await ends(openSync('/dev/null', 'r'));
    assert.equal(code, 1, log);
    assert.match(
      log,
      /^Error: listening on the inherited socket 3: \w+\nGive the socket unit one ListenStream=, which is a port or a path, and restart it\.$/m,
    );
  });
});
