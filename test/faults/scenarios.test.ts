/** Faults beyond one answer gone wrong: of the remote, of the process, of its disk and clients. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { bodyOf, type ChatResponse } from './ask.ts';
import { type ProcessScene, processScene, scene } from './scenes.ts';

const ANSWERED = new Set(['200 clean true undefined']);
const kinds = (responses: readonly ChatResponse[]): Set<string> =>
  new Set(
    responses.map(({ status, ended, terminal, error }) => `${status} ${ended} ${terminal} ${error?.code}`),
  );

describe('a remote that cannot be verified, or has become another one', { timeout: 600_000 }, () => {
  it('makes requests wait, and none leaves; they are answered once its evidence is good', async (t) => {
    const s = await scene(t, { simulator: { faults: { 'evidence-debug': true } } });
    const { faults, counts } = s.stack.simulator;
    assert.equal(await s.ready(), 503);
    const waiting = s.ask();
    await eventually('an attempt', () => s.stack.proxy.session.standing().error !== undefined);
    assert.equal(counts['inference'], 0, 'a request left before the remote was verified');
    faults.clear();
    assert.ok((await waiting).terminal);
    assert.equal(await s.ready(), 204);
    await s.finish({ upstream: 1 });
  });

  it('is used under its old manifest to the end of a stream, which breaks visibly; the next request has the new one', async (t) => {
    const s = await scene(t);
    const { simulator, proxy, directory } = s.stack;
    const old = simulator.manifestSha256;
    const running = s.ask({ model: 'sim-2000x30' });
    const written = (): number => simulator.exchanges.all()[0]?.written ?? 0;
    await eventually('the stream', () => written() > 0);
    await simulator.rotateManifest();
    const before = written();
    await eventually('more of the stream', () => written() > before + 3);
    simulator.secrets.dropAll();
    const cut = await running;
    assert.deepEqual(kinds([cut]), new Set(['200 broken false stream_unfinished']));
    assert.equal(cut.headers['privatemode-proxy-manifest-sha256'], old);
    assert.equal(await s.ready(), 204);
    const next = await s.ask();
    assert.ok(next.terminal);
    assert.equal(next.headers['privatemode-proxy-manifest-sha256'], simulator.manifestSha256);
    assert.notEqual(simulator.manifestSha256, old);
    assert.equal(proxy.session.standing().state, 'verified');
    const log = readFileSync(join(directory, 'workspace/manifests/log.txt'), 'utf8');
    assert.equal(log.trim().split('\n').length, 2);
    await s.finish({ upstream: 3, shown: [cut.body] });
  });

  it('serves streams to their end, each under the secret that its receipt names, while secrets are renewed', async (t) => {
    // Each secret lives far longer than a stream, also on a slow machine.
    const s = await scene(t, {
      simulator: { secretLifetime: 120_000 },
      times: { secretRenew: 500, secretJitter: 0, secretUsable: 100_000 },
    });
    const asked: Promise<ChatResponse>[] = [];
    const ids = new Set<string | undefined>();
    while (ids.size < 3) {
      await s.ask();
      ids.add(s.stack.proxy.session.current()?.secretId);
      if (asked.length < 40) asked.push(s.ask({ model: 'sim-40x30' }));
    }
    const responses = await Promise.all(asked);
    assert.deepEqual(kinds(responses), ANSWERED);
    const secrets = new Set(responses.map(({ headers }) => headers['privatemode-proxy-secret-id']));
    assert.ok(secrets.size >= 2, `${secrets.size} secrets were used`);
    assert.equal(s.stack.proxy.counters.upstreamRetries.size, 0);
    await s.finish({ upstream: s.stack.simulator.counts['inference'] ?? 0 });
  });
});

describe('the process', { timeout: 600_000 }, () => {
  it('takes no new connections after SIGTERM, ends its 100 streams normally within the grace, and exits with 0', async (t) => {
    // 16 s and few events, because a slow machine has 100 streams to open, and to end.
    const s = await processScene(t, {
      flags: ['--shutdown-grace=10m'],
      times: { connectTimeout: 120_000 },
    });
    await s.logs('Secret updated');
    const asked = Array.from({ length: 100 }, () => s.ask({ model: 'sim-40x400' }));
    const begun = (): number => s.simulator.exchanges.all().filter(({ written }) => written > 0).length;
    await eventually('100 streams under way', () => begun() >= 100);
    s.proxy.process.kill('SIGTERM');
    const refused = (): Promise<boolean> =>
      fetch(`${s.proxy.url}/readyz`, { headers: { connection: 'close' } }).then(
        (answer) => answer.arrayBuffer().then(() => false),
        () => true,
      );
    await eventually('the end of new connections', refused);
    assert.ok(s.simulator.exchanges.inFlight() > 0);
    assert.deepEqual(kinds(await Promise.all(asked)), ANSWERED);
    await s.finish({ upstream: 100 });
  });

  it('reads the API key file again on SIGHUP, for the next request, and a stream under way goes on', async (t) => {
    const keyFile = join(temporaryDirectory('privatemode-key-'), 'key');
    const s = await processScene(t, {
      keyFile({ key }) {
        writeFileSync(keyFile, key);
        return keyFile;
      },
    });
    await s.logs('Secret updated');
    const running = s.ask({ model: 'sim-40x30' });
    await eventually('the stream', () => s.simulator.exchanges.inFlight() === 1);
    const next = `${s.canaries.key}-next`;
    writeFileSync(keyFile, next);
    s.proxy.process.kill('SIGHUP');
    await s.logs('was read again');
    s.simulator.setApiKeys([next]);
    assert.deepEqual(kinds([await s.ask(), await running]), ANSWERED);
    await s.finish({ upstream: 2 });
  });

  it('recognizes each of 200 connections that are reset before the answer begins, and sends those requests once more', async (t) => {
    const s = await processScene(t);
    await s.logs('Secret updated');
    const models = ['sim-12x5', 'sim-12x5+fault-once=reset_before_headers'];
    for (let round = 0; round < 8; round++) {
      const asked = Array.from({ length: 50 }, (_, i) => s.ask({ model: models[i % 2] as string }));
      assert.deepEqual(kinds(await Promise.all(asked)), ANSWERED);
    }
    await s.finish({ upstream: 600 });
  });

  it('closes connections when no file descriptor is left, and recovers when they have ended', async (t) => {
    const s = await processScene(t, { limits: 'ulimit -n 64' });
    await s.logs('Secret updated');
    let closed = 0;
    const sockets = Array.from({ length: 200 }, () =>
      connect(Number(new URL(s.proxy.url).port), '127.0.0.1')
        .on('error', () => {})
        .once('close', () => closed++),
    );
    await eventually('a hundred closed connections', () => closed > 100);
    const refused = await s.ask();
    assert.notEqual(refused.status, 200);
    for (const socket of sockets) socket.destroy();
    await eventually('an answer', async () => (await s.ask()).terminal);
    await s.finish({ upstream: 1, shown: [refused.body] });
  });
});

describe('a full disk', { timeout: 600_000 }, () => {
  it('at the start keeps everything from being sent: no manifest is enforced that cannot be logged', async (t) => {
    const s = await processScene(t, { limits: 'ulimit -f 1' });
    await s.logs('manifest_log_failed');
    assert.equal((await fetch(`${s.proxy.url}/readyz`)).status, 503);
    assert.match(s.proxy.log(), /EFBIG|ENOSPC/);
    await s.finish({ upstream: 0 });
  });
});

/** Resident memory of the proxy in MB; what the kernel holds for its sockets is not part of it. */
function megabytes({ proxy }: ProcessScene): number {
  const status = readFileSync(`/proc/${proxy.process.pid}/status`, 'utf8');
  return Math.round(Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024);
}

/** A file with the answer of the model `endless`, in 2,000 events of 100 KB. */
function endlessTranscript(): string {
  const choice = { index: 0, delta: { content: 'x'.repeat(100_000) }, logprobs: null, finish_reason: null };
  const data = {
    ...{ id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'endless' },
    choices: [choice],
    usage: { prompt_tokens: 1, total_tokens: 2, completion_tokens: 1 },
  };
  const path = join(temporaryDirectory(), 'transcript.json');
  writeFileSync(
    path,
    JSON.stringify({ endless: { events: Array.from({ length: 2_000 }, () => ({ data })) } }),
  );
  return path;
}

describe('clients that stop reading endless answers', { timeout: 600_000 }, () => {
  it('take less than 300 MB of the 4,000 that twenty are offered, and another client is served', async (t) => {
    const s = await processScene(t, { simulator: { transcripts: endlessTranscript() } });
    await s.logs('Secret updated');
    assert.ok((await s.ask()).terminal);
    const before = megabytes(s);
    const body = bodyOf({ style: 'openai', mode: 'stream', model: 'endless', prompt: s.canaries.prompt });
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;
    const sockets: Socket[] = Array.from({ length: 20 }, () => {
      const socket = connect({ port: Number(new URL(s.proxy.url).port), host: '127.0.0.1' }).pause();
      socket.on('error', () => {}).write(`${head}Content-Length: ${body.length}\r\n\r\n${body}`);
      return socket;
    });
    let written = -1;
    const isStuck = (): boolean => {
      const now = s.simulator.exchanges.all().reduce((sum, exchange) => sum + exchange.written, 0);
      const moved = now > written || s.simulator.exchanges.inFlight() < sockets.length;
      written = now;
      return !moved;
    };
    await eventually('every stream stuck', isStuck, 60_000, 1_000);
    const grown = megabytes(s) - before;
    assert.ok(grown < 300, `${grown} MB more`);
    assert.ok((await s.ask({ model: 'sim-20x10' })).terminal);
    for (const socket of sockets) socket.destroy();
    await s.finish({ upstream: sockets.length + 2 });
  });
});
