import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { SimulatorOptions } from '../../simulator/simulator.ts';
import { type Canaries, newCanaries } from '../support/doors/canaries.ts';
import { assertClean, assertReturned, resources } from '../support/doors/invariants.ts';
import { sharedHardware } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { startRemote } from '../support/remote/remote.ts';
import { ask, bodyOf, type Question } from './ask.ts';

/** Asks for a stream in the OpenAI API style; the prompt is the canary, several times over. */
const question = ({ prompt }: Canaries): Question => ({
  style: 'openai',
  mode: 'stream',
  model: 'sim-echo',
  prompt: Array.from({ length: 12 }, (_, i) => `${prompt}-${i}`).join(' '),
});

/** The program in a process of its own, for limits of the system and memory. */
async function processScene(
  t: TestContext,
  options: {
    readonly limits?: string;
    readonly simulator?: SimulatorOptions;
  } = {},
) {
  const canaries = newCanaries();
  await sharedHardware();
  const before = resources();
  const { simulator, directory, flags, env } = await startRemote({
    ...options.simulator,
    apiKey: canaries.key,
  });
  const proxy = await startProxyProcess([...flags, '--port=0', '--log-level=debug'], env, options);
  t.after(async () => {
    await proxy.stop('SIGKILL');
    await simulator.close();
  });
  return {
    simulator,
    proxy,
    canaries,
    /** Resolves once the log says this. */
    logs: (words: string) =>
      eventually(
        () => `${words} in ${proxy.log()}`,
        () => proxy.log().includes(words),
      ),
    ask: (overrides: Partial<Question> = {}) => ask(proxy.url, { ...question(canaries), ...overrides }),
    /** SIGTERM, exit code 0, and every invariant that shows from outside. */
    async finish({
      upstream,
      shown = [],
    }: {
      readonly upstream: number;
      readonly shown?: readonly string[];
    }) {
      await eventually('requests at rest', () => simulator.exchanges.inFlight() === 0);
      assert.equal(simulator.counts['inference'], upstream, 'requests that reached the service');
      assert.deepEqual(simulator.exchanges.violations(), [], 'rules of the wire');
      assert.equal(simulator.recorder.containing(canaries.prompt).length, 0, 'plaintext on the wire');
      assert.equal(await proxy.stop(), 0, proxy.log());
      for (const text of [proxy.log(), ...shown])
        assert.ok(!text.includes(canaries.prompt) && !text.includes(canaries.key), 'a canary was shown');
      assert.doesNotMatch(proxy.log(), /Warning|uncaught|unhandled/i);
      assertClean(directory, [canaries.prompt, canaries.key]);
      await simulator.close();
      await assertReturned(before);
    },
  };
}

type ProcessScene = Awaited<ReturnType<typeof processScene>>;

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
  const events = Array.from({ length: 2_000 }, () => ({ data }));
  writeFileSync(path, JSON.stringify({ endless: { events } }));
  return path;
}

it('clients that stop reading endless answers take less than 300 MB of the 4,000 that twenty are offered, and another client is served', {
  timeout: 600_000,
}, async (t) => {
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
