/**
 * A kept connection that the service closed while it was idle fails with the next request, which is then sent
 * once more.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { type Script, type Scripted, saying } from '../support/remote/scripted-upstream.ts';
import { completion } from '../support/remote/sealed-answers.ts';

const answering = saying(completion);

describe('stale keep-alive connections', { concurrency: true }, () => {
  const ways: [name: string, close: (scripted: Scripted) => void][] = [
    ['closed', (scripted) => scripted.end()],
    ['reset', (scripted) => scripted.reset()],
  ];
  for (const [name, close] of ways) {
    it(`a request on a connection that was kept or opened ahead, and is ${name} without an answer, is sent again on a new one`, async (t) => {
      for (const warmConnections of [0, 1]) {
        const { upstream, gateway, ask } = await gatewayFixture(t, { settings: { warmConnections } });
        if (warmConnections === 0) {
          upstream.on(answering);
          assert.equal((await ask(post())).status, 200);
        } else await eventually('a connection opened ahead', () => upstream.connections.secure === 1);
        upstream.on(close, answering);
        assert.equal((await ask(post())).status, 200);
        const [stale, fresh] = upstream.requests.slice(-2);
        assert.equal(stale?.connection, 0);
        assert.notEqual(fresh?.connection, 0);
        const ids = [stale, fresh].map((request) => request?.headers['privatemode-user-request-id']);
        assert.equal(ids[0]?.replace(/0$/, '1'), ids[1]);
        assert.deepEqual([...gateway.counters.upstreamRetries], [['stale_connection', 1]]);
      }
    });
  }

  it('a connection that was opened ahead and has been closed since is not used', async (t) => {
    const { upstream, gateway, ask } = await gatewayFixture(t, { settings: { warmConnections: 1 } });
    await eventually('a connection opened ahead', () => upstream.connections.secure === 1);
    upstream.drop();
    await eventually('the end of the connection', () => upstream.connections.open === 0);
    upstream.on(answering);
    assert.equal((await ask(post())).status, 200);
    assert.notEqual(upstream.requests[0]?.connection, 0);
    assert.deepEqual([...gateway.counters.upstreamRetries], []);
  });

  it('the retry does not use another kept connection', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const both = Promise.withResolvers<void>();
    const together: Script = async (scripted) => {
      const body = await scripted.body();
      if (upstream.requests.length === 2) both.resolve();
      await both.promise;
      await scripted.write(completion(body));
    };
    upstream.on(together, together, (scripted) =>
      scripted.request.connection < 2 ? scripted.end() : answering(scripted),
    );
    await Promise.all([ask(post()), ask(post())]);
    assert.equal((await ask(post())).status, 200);
    assert.equal(upstream.requests.at(-1)?.connection, 2);
  });

  it('a connection that closes long after the request does not count as stale', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { times: { staleWithin: 50 } });
    upstream.on(answering, async (scripted) => {
      await scripted.body();
      await delay(100);
      scripted.end();
    });
    await ask(post());
    assert.equal((await ask(post())).status, 502);
    assert.equal(upstream.requests.length, 2);
  });
});
