/** `--listen-address unix:PATH`: a socket in the file system in place of a port. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { systemClock } from '../../lib/clock.ts';
import type { AppResponse } from '../../lib/gateway/observed-response.ts';
import { breakConnection } from '../../lib/gateway/own-response.ts';
import { claimSocket, listen } from '../../lib/listener/listen.ts';
import { get } from '../support/doors/gateway-fixture.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type Remote, startRemote } from '../support/remote/remote.ts';

const QUESTION = JSON.stringify({
  model: 'sim-echo',
  messages: [{ role: 'user', content: 'through a file' }],
});

/** What the model answers through the socket. */
async function asked(socketPath: string): Promise<string> {
  const sent = request({ socketPath, path: '/v1/chat/completions', method: 'POST', agent: false });
  sent.setHeader('content-type', 'application/json').end(QUESTION);
  const [response] = await once(sent, 'response');
  return JSON.parse(await text(response)).choices[0].message.content;
}

/** Leaves the file of a socket behind on which nobody answers any more, as a process does that is killed. */
async function leaveStale(path: string): Promise<void> {
  const script = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  await promisify(execFile)(process.execPath, ['-e', script]).catch(() => {});
  assert.ok(statSync(path).isSocket());
}

const opening = (path: string) => listen({ at: { path }, clock: systemClock }, () => {});

describe('a proxy that listens on a socket file', { timeout: 600_000 }, () => {
  let remote: Remote;
  let path: string;
  before(async () => {
    remote = await startRemote();
    path = join(temporaryDirectory('privatemode-socket-'), 'proxy.sock');
  });
  after(() => remote.close());

  it('takes over the file of a killed proxy, answers, and removes the file at its end', async (t) => {
    await leaveStale(path);
    const proxy = await startProxyProcess([...remote.flags, `--listen-address=unix:${path}`], remote.env);
    t.after(() => proxy.stop('SIGKILL'));
    assert.equal(proxy.url, `unix:${path}`);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal(await asked(path), 'through a file');
    assert.match(proxy.log(), /openai=http:\/\/localhost\/v1 anthropic=http:\/\/localhost socket=\/.*\.sock/);
    assert.equal(await proxy.stop(), 0);
    assert.equal(existsSync(path), false);
  });

  it('creates the file with mode 0600, whatever the umask, and changes no mode through a link in its place', async () => {
    const own = process.umask(0o022);
    const opened = opening(path);
    assert.deepEqual([statSync(path).mode & 0o777, process.umask(own)], [0o600, 0o022]);
    const victim = `${path}.victim`;
    writeFileSync(victim, 'secret', { mode: 0o600 });
    renameSync(path, `${path}.moved`);
    symlinkSync(victim, path);
    const listener = await opened;
    assert.equal(statSync(victim).mode & 0o777, 0o600);
    await listener.drain();
    for (const left of [path, victim, `${path}.moved`]) rmSync(left, { force: true });
  });

  it('ends a response that breaks off with a close, since a socket file has no reset', async () => {
    const listener = await listen({ at: { path }, clock: systemClock }, (_req, res) => {
      res.write('a part', () => breakConnection({ res: res as AppResponse }));
    });
    const socket = connect(path);
    socket.write(get('/'));
    assert.match(await text(socket), /a part(?:\r\n)?$/);
    await listener.drain();
  });

  it('is refused a path on which another program answers, of another file or of a link, and keeps what is there', async (t) => {
    const other = createServer((socket) => socket.end()).listen(path);
    await once(other, 'listening');
    t.after(() => other.close());
    const [file, link] = [`${path}.file`, `${path}.link`];
    writeFileSync(file, 'notes');
    symlinkSync(file, link);
    for (const at of [path, file, link]) {
      await claimSocket(at);
      await assert.rejects(opening(at), { code: 'listen_failed' });
      assert.ok(existsSync(at));
    }
  });
});
