/** From SIGTERM until the port closes: the proxy says that it goes, and still serves (--shutdown-delay). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { listen } from '../../lib/listener/listen.ts';
import { shellWord } from '../../lib/text.ts';
import { chatBody, get, post } from '../support/doors/gateway-fixture.ts';
import { type RawClient, rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { childrenOf, cleanEnvironment, SOURCES, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

function asking(t: TestContext, port: number, request: string | Buffer): RawClient {
  const client = rawClient(port);
  t.after(() => client.socket.destroy());
  client.send(request);
  return client;
}

it('a listener that announces its end ends each connection after its next response, and still accepts new ones', async (t) => {
  const [held, arrived] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const listener = await listen(
    { at: { host: '127.0.0.1', port: 0 }, clock: systemClock },
    async (req, res) => {
      if (req.url === '/held') {
        arrived.resolve();
        await held.promise;
      }
      res.end('answered');
    },
  );
  t.after(() => {
    listener.destroy();
    return listener.drain();
  });
  const idle = asking(t, listener.port, get('/'));
  assert.match(await idle.until(/answered/), /connection: keep-alive/i);
  const earlier = asking(t, listener.port, get('/held'));
  await arrived.promise;
  listener.announceEnd();
  held.resolve();
  idle.send(get('/'));
  for (const client of [idle, earlier, asking(t, listener.port, get('/'))]) {
    assert.equal(await client.ended, 'end');
    assert.match(client.received(), /connection: close[\s\S]*answered$/i);
  }
});

describe('a proxy after SIGTERM', { concurrency: true, timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  const ANNOUNCED = /msg="Closing after the delay; a second signal ends it" delaySeconds=/;

  async function started(t: TestContext, flags: readonly string[], env: Record<string, string> = {}) {
    const workspace = `--workspace=${temporaryDirectory()}`;
    const proxy = await startProxyProcess([...remote.flags, '--port=0', workspace, ...flags], {
      ...remote.env,
      ...env,
    });
    t.after(() => proxy.stop('SIGKILL'));
    return { proxy, port: Number(new URL(proxy.url).port) };
  }

  it('answers /readyz on both listeners with 503, serves requests, and closes the port at a second signal', async (t) => {
    const admin = Number(await freePort());
    const flags = [`--admin-address=127.0.0.1:${admin}`, '--shutdown-delay=10m'];
    const { proxy, port } = await started(t, flags);
    const ready = async (): Promise<boolean> => (await fetch(`http://127.0.0.1:${admin}/readyz`)).ok;
    await eventually('a verified service', ready, 20_000);

    const stopped = proxy.stop('SIGTERM');
    await eventually('the announcement', () => ANNOUNCED.test(proxy.log()));
    for (const at of [port, admin])
      await asking(t, at, get('/readyz')).until(/^HTTP\/1\.1 503[\s\S]*-error: shutting_down[\s\S]*ended: /i);
    const stream = asking(t, port, post(chatBody({ model: 'sim-2x10', stream: true })));
    assert.equal(await stream.ended, 'end');
    assert.match(stream.received(), /^HTTP\/1\.1 200[\s\S]*connection: close[\s\S]*data: \[DONE\]/i);

    proxy.process.kill('SIGTERM'); // or the delay would be waited for
    assert.equal(await stopped, 0, proxy.log());
  });

  it('keeps the port open for --shutdown-delay, closes it by itself, and asks systemd for that time, --shutdown-grace and a margin', async (t) => {
    const directory = temporaryDirectory();
    const told = join(directory, 'told');
    writeFileSync(told, '');
    const stub = `#!/bin/sh\necho "$@" >> '${told}'\n`;
    writeFileSync(join(directory, 'systemd-notify'), stub, { mode: 0o755 });
    const manager = { NOTIFY_SOCKET: '/nobody', PATH: `${directory}:${process.env['PATH']}` };
    const { proxy } = await started(t, ['--shutdown-delay=1s', '--shutdown-grace=10m'], manager);
    await eventually('the readiness', () => readFileSync(told, 'utf8').includes('READY=1'));
    const begun = performance.now();
    assert.equal(await proxy.stop('SIGTERM'), 0, proxy.log());
    assert.ok(performance.now() - begun >= 1_000);
    assert.match(proxy.log(), ANNOUNCED);
    assert.match(readFileSync(told, 'utf8'), /\nSTOPPING=1 EXTEND_TIMEOUT_USEC=616000000\n$/);
  });
});

// Through a shell, which repeats the signal.
it('a proxy on a terminal reads its files again on SIGHUP, and ends if the terminal has closed', {
  timeout: 600_000,
}, async (t) => {
  /** Whether the process runs; one that has ended may wait for its parent. */
  const runs = (pid: number): boolean => {
    try {
      return !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return false;
    }
  };
  const directory = temporaryDirectory('terminal-');
  const [screen, key] = [join(directory, 'screen'), join(directory, 'key')];
  writeFileSync(key, 'first');
  writeFileSync(screen, '');
  const flags = ['--listen-address=127.0.0.1', '--port=0', '--api-endpoint=127.0.0.1:9'];
  const files = [`--api-key=@${key}`, `--workspace=${directory}`];
  const through = ['/bin/sh', '-c', '"$@"; exit $?', 'sh'];
  const command = [...through, process.execPath, SOURCES, ...flags, ...files];
  const terminal = spawn('script', ['-qfec', `exec ${command.map(shellWord).join(' ')}`, screen], {
    env: cleanEnvironment({ SHELL: '/bin/sh' }),
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  t.after(() => terminal.kill('SIGKILL'));
  const shown = (text: RegExp) =>
    eventually(
      () => `${text} on the terminal: ${readFileSync(screen, 'utf8')}`,
      () => text.test(readFileSync(screen, 'utf8')),
    );
  await shown(/http:\/\/127\.0\.0\.1:\d+/);
  let pid = terminal.pid as number;
  for (let [child] = childrenOf(pid); child !== undefined; [child] = childrenOf(child)) pid = child;
  t.after(() => void (runs(pid) && process.kill(pid, 'SIGKILL')));
  writeFileSync(key, 'second');
  process.kill(pid, 'SIGHUP');
  await shown(/The API key file was read again/);
  assert.ok(runs(pid));
  terminal.kill('SIGKILL');
  await eventually('the end of the proxy', () => !runs(pid), 30_000);
});
