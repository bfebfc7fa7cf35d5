/** From SIGTERM until the port closes: the proxy says that it goes, and still serves (--shutdown-delay). */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock } from '../../lib/clock.ts';
import { listen } from '../../lib/listener/listen.ts';
import { shellWord } from '../../lib/text.ts';
import { get, post } from '../support/doors/gateway-fixture.ts';
import { type RawClient, rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import {
  childrenOf,
  cleanEnvironment,
  type Program,
  SOURCES,
  startProxyProcess,
} from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

describe('a listener that announces its end', () => {
  const listening = async (t: TestContext) => {
    const options = {
      listenAddress: '127.0.0.1',
      port: 0,
      tls: undefined,
      fd: undefined,
      clock: systemClock,
    };
    const held = Promise.withResolvers<void>();
    const listener = await listen(options, async (req, res) => {
      if (req.url === '/late') await held.promise;
      res.end('answered');
    });
    t.after(() => {
      listener.destroy();
      return listener.drain();
    });
    const clients: RawClient[] = [];
    t.after(() => {
      for (const { socket } of clients) socket.destroy();
    });
    const client = (request = ''): RawClient => {
      const opened = rawClient(listener.port);
      clients.push(opened);
      opened.send(request);
      return opened;
    };
    return { listener, client, answer: held.resolve };
  };

  it('ends each connection after its next response, and still accepts new connections', async (t) => {
    const { listener, client } = await listening(t);
    const idle = client(get('/'));
    assert.match(await idle.until(/answered/), /connection: keep-alive/i);
    listener.announceEnd();
    await delay(100); // it could be ended meanwhile
    idle.send(get('/'));
    await idle.until(/connection: close[\s\S]*answered$/i);
    assert.equal(await idle.ended, 'end');
    const late = client(get('/'));
    await late.until(/200 OK[\s\S]*connection: close[\s\S]*answered$/i);
    assert.equal(await late.ended, 'end');
  });

  it('sends Connection: close also in the response to an earlier request', async (t) => {
    const { listener, client, answer } = await listening(t);
    const asking = client(get('/late'));
    await delay(50);
    listener.announceEnd();
    answer();
    await asking.until(/connection: close[\s\S]*answered$/i);
  });
});

describe('a proxy after SIGTERM', { concurrency: true, timeout: 600_000 }, () => {
  let remote: Remote;
  before(async () => {
    remote = await startRemote();
  });
  after(() => remote.close());

  const ANNOUNCED = /msg="The port closes after the delay; a second signal closes it now" delaySeconds=/;
  const chat = (stream: boolean): Buffer =>
    post(
      JSON.stringify({
        model: 'sim-2x10',
        stream,
        messages: [{ role: 'user', content: 'x' }],
      }),
    );

  async function started(t: TestContext, ...flags: string[]): Promise<{ proxy: Program; port: number }> {
    const workspace = join(remote.directory, `workspace-${crypto.randomUUID()}`);
    const proxy = await startProxyProcess(
      [...remote.flags, '--port=0', `--workspace=${workspace}`, ...flags],
      remote.env,
    );
    t.after(() => proxy.stop('SIGKILL'));
    return { proxy, port: Number(new URL(proxy.url).port) };
  }

  /** The whole response on a connection of its own. */
  async function asked(port: number, request: string | Buffer): Promise<string> {
    const client = rawClient(port);
    client.send(request);
    const ended = await Promise.race([client.ended, delay(10_000, 'open', { ref: false })]);
    client.socket.destroy();
    assert.equal(ended, 'end', `the connection is ${ended}: ${client.received()}`);
    return client.received();
  }

  it('answers /readyz on both listeners with 503, serves requests, and closes the port at a second signal', async (t) => {
    const admin = Number(await freePort());
    const { proxy, port } = await started(
      t,
      ...[`--admin-address=127.0.0.1:${admin}`, '--shutdown-delay=60s'],
    );
    const kept = rawClient(port);
    t.after(() => kept.socket.destroy());
    kept.send(get('/healthz'));
    await kept.until(/keep-alive/i);
    const ready = async (): Promise<boolean> => (await fetch(`http://127.0.0.1:${admin}/readyz`)).ok;
    await eventually('a verified service', ready, 20_000);

    const stopped = proxy.stop('SIGTERM');
    await eventually('the announcement', () => ANNOUNCED.test(proxy.log()));
    for (const at of [port, admin])
      assert.match(
        await asked(at, get('/readyz')),
        /^HTTP\/1\.1 503[\s\S]*privatemode-proxy-error: shutting_down[\s\S]*ended: /i,
      );
    assert.match(await asked(port, get('/healthz')), /^HTTP\/1\.1 200/);
    for (const stream of [false, true]) {
      const response = await asked(port, chat(stream));
      assert.match(response, /^HTTP\/1\.1 200[\s\S]*\r\nconnection: close\r\n/i);
      if (stream) assert.match(response, /data: \[DONE\]/);
    }
    kept.send(get('/healthz'));
    await kept.until(/connection: close/i);
    assert.equal(await kept.ended, 'end');

    const begun = performance.now();
    proxy.process.kill('SIGTERM');
    assert.equal(await stopped, 0, proxy.log());
    assert.ok(performance.now() - begun < 10_000, 'the delay was waited for');
  });

  it('keeps the port open for --shutdown-delay, closes it by itself, and asks systemd for that time, --shutdown-grace and a margin', async (t) => {
    const directory = temporaryDirectory();
    const stub = `#!/bin/sh\necho "$@" >> '${directory}/told'\n`;
    writeFileSync(join(directory, 'systemd-notify'), stub, { mode: 0o755 });
    const flags = ['--port=0', `--workspace=${directory}`, '--shutdown-delay=1s', '--shutdown-grace=10m'];
    const manager = { NOTIFY_SOCKET: '/nobody', PATH: `${directory}:${process.env['PATH']}` };
    const proxy = await startProxyProcess([...remote.flags, ...flags], { ...remote.env, ...manager });
    t.after(() => proxy.stop('SIGKILL'));
    await eventually('the readiness', () => existsSync(join(directory, 'told')));
    const begun = performance.now();
    const stopped = proxy.stop('SIGTERM');
    await eventually('the announcement', () => ANNOUNCED.test(proxy.log()));
    assert.equal(await stopped, 0, proxy.log());
    const took = performance.now() - begun;
    assert.ok(took >= 1_000 && took < 60_000, `${took} ms`);
    const last = readFileSync(join(directory, 'told'), 'utf8').trim().split('\n').at(-1);
    assert.equal(last, 'STOPPING=1 EXTEND_TIMEOUT_USEC=616000000');
  });
});

describe('a proxy on a terminal', { timeout: 600_000 }, () => {
  /** Whether the process runs; one that has ended may wait for its parent. */
  const runs = (pid: number): boolean => {
    try {
      return !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return false;
    }
  };

  // Through a shell, which repeats the signal.
  it('reads its files again on SIGHUP, and ends if the terminal has closed', async (t) => {
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
});
