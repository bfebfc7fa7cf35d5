/** Faults beyond one answer gone wrong: of the process, of its disk and clients. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { bodyOf } from './ask.ts';
import { type ProcessScene, processScene } from './scenes.ts';

describe('the process', { timeout: 600_000 }, () => {
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

  it('sends nothing if the disk is full at the start: no manifest is enforced that cannot be logged', async (t) => {
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
