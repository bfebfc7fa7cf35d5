import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Agent, get } from 'node:https';
import { connect } from 'node:net';
import { before, describe, it } from 'node:test';
import { call, sharedHardware, startTestSimulator } from '../support/simulator.ts';

const ATTEST = '/privatemode/v1/attest';

/** Timers and sockets that keep a process alive, by kind, once what was closed has settled. */
async function activeResources(): Promise<Record<string, number>> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  const counts: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

describe('closing a simulator', { timeout: 20_000 }, () => {
  before(() => sharedHardware());

  it('leaves no socket and no timer, whatever the clients were doing', async () => {
    const baseline = await activeResources();
    const simulator = await startTestSimulator({ faults: { 'manifest-hang': true } });
    const { port, caPem: ca } = simulator;
    const agent = new Agent({ keepAlive: true });
    const target = { host: '127.0.0.1', servername: 'localhost', port, ca, agent };

    const idle = get({ ...target, path: '/IntelSGXRootCA.der' });
    const [answer] = await once(idle, 'response');
    answer.resume();
    await once(answer, 'end');
    const hanging = get({ ...target, path: '/privatemode/v2/manifest.json' });
    const hung = once(hanging, 'error');
    const silent = connect(port, '127.0.0.1'); // never begins its TLS handshake
    silent.on('error', () => {});
    await once(silent, 'connect');
    const silenced = once(silent, 'close');
    while (simulator.counts['manifest'] === 0) await new Promise((resolve) => setTimeout(resolve, 5));

    await simulator.close();
    await Promise.all([hung, silenced]);
    agent.destroy();
    assert.deepEqual(await activeResources(), baseline);
  });

  it('frees the port at once', async () => {
    const first = await startTestSimulator();
    await first.close();
    const second = await startTestSimulator({ port: first.port });
    assert.equal(second.port, first.port);
    await second.close();
  });
});

describe('the recorder of a simulator', () => {
  it('keeps the newest requests, and so much of each body as its limits say', async () => {
    const simulator = await startTestSimulator({ recorderLimits: { maxRequests: 2, maxBodyBytes: 10 } });
    try {
      for (const path of ['/one', '/two']) await call(simulator, 'POST', path);
      await call(simulator, 'POST', ATTEST, {
        headers: { authorization: 'Bearer x' },
        body: '0123456789abcdef',
      });
      const requests = simulator.recorder.requests();
      assert.deepEqual(
        requests.map(({ path }) => path),
        ['/two', ATTEST],
      );
      assert.equal(requests[1]?.body.toString(), '0123456789');
      assert.equal(requests[1]?.bodyBytes, 16);
      assert.equal(simulator.recorder.containing('/two').length, 1);
      assert.equal(simulator.recorder.containing(Buffer.from('23456')).length, 1);
      assert.equal(simulator.recorder.containing('Bearer x').length, 1);
      assert.equal(simulator.recorder.containing('abcdef').length, 0);
    } finally {
      await simulator.close();
    }
  });
});
