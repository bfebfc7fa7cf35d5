/** `--listen-address unix:PATH`: a socket in the file system in place of a port. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { systemClock } from '../../lib/clock.ts';
import { claimSocket, listen, removeStale } from '../../lib/listener/listen.ts';
import { runCommand } from '../support/processes/command.ts';
import { program as foreign, runBeside, waitFor } from '../support/processes/foreign-programs.ts';
import { type Program, startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { ROOT } from '../support/processes/tools.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const ACTIVATE = foreign('systemd-socket-activate', { from: 'scripts/install-system-tools.sh' });
const QUESTION = JSON.stringify({
  model: 'sim-echo',
  messages: [{ role: 'user', content: 'through a file' }],
});

async function ask(
  socketPath: string,
  path: string,
  { body, authorization }: { readonly body?: string; readonly authorization?: string } = {},
): Promise<{ readonly status: number | undefined; readonly body: string }> {
  const headers = {
    'content-type': 'application/json',
    ...(authorization === undefined ? {} : { authorization }),
  };
  const sent = request({
    socketPath,
    path,
    method: body === undefined ? 'GET' : 'POST',
    headers,
    agent: false,
  });
  sent.end(body);
  const [response] = await once(sent, 'response');
  return { status: response.statusCode, body: await text(response) };
}

/** Leaves the file of a socket behind on which nobody answers any more, as a process does that is killed. */
async function leaveStale(path: string): Promise<void> {
  const script = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  await promisify(execFile)(process.execPath, ['-e', script]).catch(() => {});
  assert.ok(statSync(path).isSocket());
}

describe('a proxy that listens on a socket file', { timeout: 600_000 }, () => {
  let remote: Remote;
  let path: string;
  let proxy: Program | undefined;
  const start = async (...flags: readonly string[]): Promise<Program> => {
    proxy = await startProxyProcess([...remote.flags, `--listen-address=unix:${path}`, ...flags], remote.env);
    return proxy;
  };
  before(async () => {
    remote = await startRemote();
    path = join(temporaryDirectory('privatemode-socket-'), 'proxy.sock');
  });
  after(async () => {
    await proxy?.stop('SIGKILL');
    await remote.close();
  });

  it('takes over the file of a killed proxy, answers, passes the health check, and removes the file at its end', async () => {
    await leaveStale(path);
    const { url, log, stop } = await start();
    assert.equal(url, `unix:${path}`);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    const { status, body } = await ask(path, '/v1/chat/completions', { body: QUESTION });
    assert.deepEqual([status, JSON.parse(body).choices[0].message.content], [200, 'through a file']);
    assert.ok(log().includes(`openai=http://localhost/v1 anthropic=http://localhost socket=${path}`), log());
    const healthy = await runCommand(['healthcheck', `--listen-address=unix:${path}`]);
    assert.deepEqual(healthy, { code: 0, stdout: 'ready\n', stderr: '' });
    assert.equal(await stop(), 0);
    assert.equal(existsSync(path), false);
    const { code, stderr } = await runCommand(['healthcheck', `--listen-address=unix:${path}`]);
    assert.equal(code, 1);
    assert.equal(stderr, `nothing listens on ${path} (ENOENT); give the --listen-address of the proxy\n`);
  });

  it('creates the file with its mode, whatever the umask, and changes no mode through a link in its place', async () => {
    const own = process.umask(0o022);
    const options = { listenAddress: '', port: 0, tls: undefined, fd: undefined };
    const opening = listen({ ...options, clock: systemClock, socketFile: { path, mode: 0o662 } }, () => {});
    assert.deepEqual([statSync(path).mode & 0o777, process.umask(own)], [0o662, 0o022]);
    const victim = `${path}.victim`;
    writeFileSync(victim, 'secret', { mode: 0o600 });
    renameSync(path, `${path}.moved`);
    symlinkSync(victim, path);
    const listener = await opening;
    assert.equal(statSync(victim).mode & 0o777, 0o600);
    await listener.drain();
    for (const left of [victim, `${path}.moved`]) rmSync(left, { force: true });
  });

  it('removes a stale socket file only once the file is a second old', async () => {
    await leaveStale(path);
    const created = Math.floor(statSync(path).mtimeMs); // whole milliseconds, as Date.now() counts
    await claimSocket(path, systemClock);
    assert.equal(existsSync(path), false);
    const age = Date.now() - created;
    assert.ok(age >= 1_000, `${age} ms`);
  });

  it('does not remove the socket of another proxy that has replaced the stale one meanwhile', async () => {
    await leaveStale(path);
    const stale = statSync(path, { bigint: true });
    const first = createServer((socket) => socket.end('first'));
    await removeStale(path, stale);
    await once(first.listen(path), 'listening');
    await assert.rejects(removeStale(path, stale), { code: 'listen_failed', message: /EADDRINUSE/ });
    assert.equal(await text(connect(path)), 'first');
    assert.deepEqual(readdirSync(dirname(path)), ['proxy.sock']);
    first.close();
    await once(first, 'close');
    await removeStale(path, stale); // somebody else has removed it
  });

  it('uses a socket file that systemd opened, and does not remove it', { skip: ACTIVATE.skip }, async (t) => {
    const environment = Object.entries(remote.env).map(([name, value]) => `--setenv=${name}=${value}`);
    const program = [process.execPath, join(ROOT, 'bin/privatemode-proxy.ts'), ...remote.flags];
    const service = runBeside(t, ACTIVATE, [`--listen=${path}`, ...environment, ...program]);
    await waitFor('systemd', () => service.output().includes('Listening on'), service);
    assert.equal((await ask(path, '/v1/chat/completions', { body: QUESTION })).status, 200);
    assert.match(service.output(), /endpoint=unix:\n/);
    await service.stop();
    assert.ok(statSync(path).isSocket());
    rmSync(path); // the next test begins without it
  });

  const refused = async (at: string, words: string): Promise<void> => {
    const options = { listenAddress: '', port: 0, tls: undefined, fd: undefined, clock: systemClock };
    const opening = async () => {
      await claimSocket(at, systemClock);
      await listen({ ...options, socketFile: { path: at, mode: 0o600 } }, () => {});
    };
    await assert.rejects(opening, { code: 'listen_failed', message: `listening on ${at}: ${words}` });
  };

  it('is refused a path on which another program answers, and leaves that socket alone', async () => {
    const other = createServer((socket) => socket.end()).listen(path);
    await once(other, 'listening');
    const who = `EADDRINUSE; another program answers there, and this shows which: lsof ${path}`;
    await refused(path, who);
    assert.ok(statSync(path).isSocket());
    other.close();
    await once(other, 'close');
  });

  it('is refused a path of another file, of a link or in no directory, and keeps what is there', async () => {
    writeFileSync(path, 'notes');
    const words = 'EEXIST; another file has that name; remove it, or choose another path';
    await refused(path, words);
    assert.equal(readFileSync(path, 'utf8'), 'notes');
    const link = `${path}.link`;
    symlinkSync(path, link);
    await refused(link, words);
    const nowhere = join(link, '../nowhere/proxy.sock');
    await refused(nowhere, 'EACCES; that directory does not exist, or this user may not use it');
  });
});
