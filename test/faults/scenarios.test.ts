import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { describe, it, type TestContext } from 'node:test';
import { newCanaries } from '../support/doors/canaries.ts';
import { assertClean, assertReturned, resources } from '../support/doors/invariants.ts';
import { sharedHardware } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { startProxyProcess } from '../support/processes/program.ts';
import { startRemote } from '../support/remote/remote.ts';
import { ask } from './ask.ts';

/** The program in a process of its own, in a shell with these limits. */
async function processScene(t: TestContext, limits: string) {
  const canaries = newCanaries();
  await sharedHardware();
  const before = resources();
  const { simulator, directory, flags, env } = await startRemote({ apiKey: canaries.key });
  const proxy = await startProxyProcess([...flags, '--port=0', '--log-level=debug'], env, { limits });
  t.after(async () => {
    await proxy.stop('SIGKILL');
    await simulator.close();
  });
  return {
    proxy,
    /** Resolves once the log says this. */
    logs: (words: string) =>
      eventually(
        () => `${words} in ${proxy.log()}`,
        () => proxy.log().includes(words),
      ),
    ask() {
      const prompt = `${canaries.prompt} `.repeat(12);
      return ask(proxy.url, { style: 'openai', mode: 'stream', model: 'sim-echo', prompt });
    },
    /** SIGTERM, exit code 0, and every invariant that shows from outside. */
    async finish(upstream: number, ...shown: readonly string[]) {
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

describe('the process', { timeout: 600_000 }, () => {
  it('closes connections when no file descriptor is left, and recovers when they have ended', async (t) => {
    const s = await processScene(t, 'ulimit -n 64');
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
    await s.finish(1, refused.body);
  });

  it('sends nothing if the disk is full at the start: no manifest is enforced that cannot be logged', async (t) => {
    const s = await processScene(t, 'ulimit -f 1');
    await s.logs('manifest_log_failed');
    assert.equal((await fetch(`${s.proxy.url}/readyz`)).status, 503);
    assert.match(s.proxy.log(), /EFBIG|ENOSPC/);
    await s.finish(0);
  });
});
