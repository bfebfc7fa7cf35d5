/** A client is gone when its response can no longer be written, not when its request has been read (Node emits `close` for both). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { fakeSession, type TestGateway } from '../support/doors/gateway.ts';
import { answerTo, chatBody, gatewayFixture, post, until } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import {
  chunked,
  completion,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });

/** The ways to vanish. A half-close counts: in Node as in Go nobody is there any more. */
const DEPARTURES: [name: string, leave: (client: RawClient) => void][] = [
  ['closes', ({ socket }) => socket.destroy()],
  ['resets', ({ socket }) => socket.resetAndDestroy()],
  ['half-closes', ({ socket }) => socket.end()],
];

/** Nothing is logged of it but that the client left. */
async function noFailure({ logLines }: TestGateway): Promise<void> {
  for (let i = 0; i < 10; i++) await turn();
  assert.doesNotMatch(logLines.join(''), /Request failed/);
}

describe('client aborts', { concurrency: true }, () => {
  for (const [how, leave] of DEPARTURES) {
    it(`a client that ${how} during its upload: nothing was sent`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      const asking = sending(post(chatBody(), { headers: ['Content-Length: 1000'] }));
      await until(() => gateway.active() === 1, 'the request was not seen');
      leave(asking);
      await until(() => gateway.active() === 0, 'the upload was waited for');
      assert.deepEqual([...gateway.counters.clientAborts], [['before_headers', 1]]);
      assert.equal(upstream.connections.total, 0);
      await noFailure(gateway);
    });

    it(`a client that ${how} before the answer: the remote's connection closes`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      const closed = Promise.withResolvers<void>();
      upstream.on(async (scripted) => {
        await scripted.body();
        void scripted.closed.then(closed.resolve);
        leave(asking);
      });
      const asking = sending(post());
      await closed.promise;
      await until(() => gateway.active() === 0, 'the exchange never ended');
      assert.deepEqual([...gateway.counters.clientAborts], [['before_headers', 1]]);
      assert.equal(upstream.requests.length, 1);
      assert.match(gateway.logLines.join(''), /"outcome":"client_aborted"/);
      await noFailure(gateway);
    });

    it(`a client that ${how} before the first token: the remote's connection closes`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      const closed = Promise.withResolvers<void>();
      upstream.on(async (scripted) => {
        await scripted.body();
        void scripted.closed.then(closed.resolve);
        await scripted.write(STREAM_HEAD);
      });
      const asking = sending(post(STREAMING));
      await asking.until(/\r\n\r\n/);
      leave(asking);
      await closed.promise;
      await until(() => gateway.active() === 0, 'the exchange never ended');
      assert.deepEqual([...gateway.counters.clientAborts], [['before_first_token', 1]]);
      await noFailure(gateway);
    });

    it(`a client that ${how} in mid-stream: the remote's connection closes`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      const closed = Promise.withResolvers<void>();
      upstream.on(async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        void scripted.closed.then(closed.resolve);
        await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
      });
      const asking = sending(post(STREAMING));
      await asking.until(/"hel"/);
      leave(asking);
      await closed.promise;
      await until(() => gateway.active() === 0, 'the exchange never ended');
      assert.deepEqual([...gateway.counters.clientAborts], [['mid_stream', 1]]);
    });
  }

  it('a client that waits a second for its answer is there', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      await delay(1_000); // nothing happens for as long
      await scripted.write(completion(body));
    });
    const asking = sending(post());
    assert.equal((await answerTo(asking)).status, 200);
    assert.equal(gateway.counters.clientAborts.size, 0);
  });

  it('a client that leaves while the secret is renewed for it gets no second request', async (t) => {
    const session = fakeSession();
    const { upstream, gateway, sending } = await gatewayFixture(t, {
      session: {
        ...session,
        async renewAfterRejection(secretId) {
          asking.socket.destroy();
          await until(() => gateway.active() === 0, 'the exchange waited');
          return session.renewAfterRejection(secretId);
        },
      },
    });
    upstream.answers(plainError(500, 'no secret for ID "x"'));
    const asking = sending(post());
    await until(() => session.rejected.length === 1, 'the secret was not renewed');
    await delay(100); // in which a second request would arrive
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });

  for (const [what, head] of [
    ['an answer', 'HTTP/1.1 200 OK'],
    ['an error', 'HTTP/1.1 400 Bad Request'],
  ] as const) {
    it(`a client that leaves while the body of ${what} arrives: that is its doing, not the service's`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        await scripted.body();
        const headers =
          'Content-Type: application/json\r\nPrivatemode-Encrypted: true\r\nContent-Length: 1000';
        await scripted.write(`${head}\r\n${headers}\r\n\r\n{"`);
        asking.socket.destroy();
      });
      const asking = sending(post());
      await until(() => gateway.logLines.some((line) => line.includes('"outcome"')), 'no line at the end');
      assert.match(gateway.logLines.join(''), /"outcome":"client_aborted"/);
      assert.equal([...gateway.counters.clientAborts].length, 1);
      assert.deepEqual([...gateway.counters.decryptFailures], []);
      await noFailure(gateway);
    });
  }
});
