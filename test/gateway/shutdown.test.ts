/**
 * A shutdown of the gateway and its listener: streams may finish, what is left then is told in its client's
 * words. The program is test/e2e/shutdown.test.ts.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { EPOCH, fakeSession } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  chatBody,
  type Fixture,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  COMPLETION,
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const SHUTDOWN = new PrivatemodeError('shutting_down', 'the grace is over');
const STREAMING = chatBody({ stream: true });

/** Begins an answer, and ends it when `go` resolves. */
const inTwoParts =
  (go: Promise<unknown>): Script =>
  async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    await go;
    await scripted.write(chunked(sealed.chunk('lo', 'stop')) + chunked(DONE) + LAST_CHUNK);
  };

const never = new Promise<never>(() => {});

/** Resolves to how long the drain took, in ms. */
async function drained(gateway: Fixture['gateway'], grace: number): Promise<number> {
  const begun = performance.now();
  await gateway.drain(grace);
  return performance.now() - begun;
}

/** ms; so long that no load on the machine is taken for it. */
const GRACE = 60_000;

/** ms for what does not wait for that. */
const WITHOUT_IT = 30_000;

describe('shutdown', () => {
  it('lets a stream finish, and then ends its keep-alive connection at once', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const go = Promise.withResolvers<void>();
    upstream.on(inTwoParts(go.promise));
    const asking = sending(post(STREAMING));
    await asking.until(/"hel"/);
    const draining = drained(gateway, GRACE);
    assert.equal(await rawClient(gateway.port).ended, 'ECONNREFUSED', 'the port is open');
    await delay(100); // the stream could be cut off meanwhile
    go.resolve();
    assert.ok((await draining) < WITHOUT_IT, 'the grace period was waited for');
    const answer = await answerTo(asking);
    assert.ok(answer.complete && answer.body.endsWith(DONE));
    assert.equal(answer.headers['connection'], 'keep-alive');
    assert.equal(await asking.ended, 'end');
  });

  it('lets a whole response finish, which has Connection: close', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const asked = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      asked.resolve();
      await go.promise;
      await scripted.write(completion(body));
    });
    const asking = sending(post());
    await asked.promise;
    const draining = drained(gateway, GRACE);
    go.resolve();
    const answer = await answerTo(asking);
    assert.deepEqual([answer.status, answer.headers['connection']], [200, 'close']);
    assert.ok((await draining) < WITHOUT_IT);
  });

  it('lets the rest of a whole response reach a slow reader', async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const message = { role: 'assistant', content: 'x'.repeat(12_000_000) };
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      const answer = sealedAnswers(await scripted.body()).object({ ...COMPLETION, choices });
      await scripted.write(http(200, answer, { 'Content-Type': 'application/json' }));
    });
    const asking = client();
    asking.socket.pause();
    asking.send(post());
    await eventually('the answer', () => gateway.heldResponses.bufferedBytes > 12_000_000);
    const draining = drained(gateway, GRACE);
    await delay(300); // what is ended could be cut off meanwhile
    asking.socket.resume();
    const { status, complete } = await answerTo(asking, 60_000);
    assert.deepEqual([status, complete], [200, true], 'the rest was cut off');
    assert.ok((await draining) < WITHOUT_IT);
  });

  it('ends idle connections at once', async (t) => {
    const { gateway, sending } = await gatewayFixture(t);
    const idle = sending(get('/healthz'));
    await idle.until(/200 OK/);
    assert.ok((await drained(gateway, GRACE)) < WITHOUT_IT);
    assert.equal(await idle.ended, 'end');
  });

  it('answers the first request on a connection that was open before, and ends that connection', async (t) => {
    const { gateway, client } = await gatewayFixture(t);
    const asking = client();
    await once(asking.socket, 'connect');
    await delay(50); // in which it is accepted
    const draining = drained(gateway, GRACE);
    asking.send(get('/healthz'));
    assert.equal(await asking.ended, 'end');
    assert.match(asking.received(), /^HTTP\/1\.1 200 OK[\s\S]*connection: close/i);
    await draining;
  });

  it('ends a stream that outlasts --shutdown-grace with the error shutting_down', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t, {
      answers: STREAM_HEAD + chunked(':\n\n'),
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n:\n\n/);
    const took = await drained(gateway, 300);
    assert.ok(took > 250 && took < WITHOUT_IT, `${took} ms`);
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    assert.match(body, /\n\ndata: \{"error":\{.*"code":"shutting_down"\}\}\n\n$/);
    assert.equal(upstream.connections.open, 0);
  });

  const unverified = fakeSession({
    acquire: ({ waiter: { signal } = {} }) =>
      new Promise((_, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
      ),
  });
  const waiting: [
    name: string,
    options: Parameters<typeof gatewayFixture>[1],
    connections: number,
    request: Buffer,
  ][] = [
    ['waits for its response', {}, 1, post()],
    [
      'has received a part of a whole response',
      { answers: (request) => completion(request).slice(0, -20) },
      ...([1, post()] as const),
    ],
    [
      'has received a part of an encrypted error',
      { answers: (request) => http(400, sealedAnswers(request).object({ error: {} })).slice(0, -5) },
      ...([1, post()] as const),
    ],
    ['is still being uploaded', {}, 0, post(chatBody(), { headers: ['Content-Length: 100000'] })],
    ['waits for the remote to be verified', { session: unverified }, 0, post()],
    [
      'waits for a new secret',
      {
        answers: plainError(500, 'no secret for ID "x"'),
        session: fakeSession({ renewAfterDenial: () => never }),
      },
      ...([1, post()] as const),
    ],
  ];
  for (const [name, options, connections, request] of waiting) {
    it(`gives 503 to a request that ${name}`, async (t) => {
      const { upstream, gateway, sending } = await gatewayFixture(t, options);
      const asking = sending(request);
      await eventually('the request', () => gateway.active() === 1);
      await eventually('its connection', () => upstream.connections.total === connections);
      await delay(150); // until it is where its name says, which nothing tells for all of them
      await gateway.drain(100);
      assert.equal(upstream.connections.total, connections);
      const answer = await answerTo(asking);
      assertError(answer, 503, 'shutting_down');
      assert.equal(answer.headers['retry-after'], '2');
      assert.equal(answer.headers['connection'], 'close');
    });
  }

  it('is not blocked by a client that does not read the end of its stream', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    let written = 0;
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (; ; written++) await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    // until all buffers are full
    for (let before = -1; before !== written; await delay(300)) before = written;
    const took = await drained(gateway, 100);
    assert.ok(took > 1_500 && took < WITHOUT_IT, `${took} ms`);
  });
});

describe('the signal of a shutdown', { concurrency: true }, () => {
  it('ends a stream if the shutdown fires while its response begins', async (t) => {
    const terminate = new AbortController();
    const { upstream, ask } = await gatewayFixture(t, {
      deps: { terminate: terminate.signal },
      wrapUpstream: (real) => ({
        ...real,
        send(res, attempt) {
          const sending = real.send(res, attempt);
          const outcome = sending.outcome.finally(() => terminate.abort(SHUTDOWN));
          return { outcome, stop: (reason) => sending.stop(reason) };
        },
      }),
    });
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    });
    assert.match((await ask(post(STREAMING))).body, /"code":"shutting_down"/);
  });

  it('keeps a request from being sent if the shutdown fires before', async (t) => {
    const terminate = new AbortController();
    const session = fakeSession({
      async acquire() {
        terminate.abort(SHUTDOWN);
        return EPOCH;
      },
    });
    const { upstream, ask } = await gatewayFixture(t, { session, deps: { terminate: terminate.signal } });
    assertError(await ask(get('/v1/models')), 503, 'shutting_down');
    assert.equal(upstream.requests.length, 0);
  });
});

it('a body that still arrives when its request fails is not read on: its receipt has its digest', async (t) => {
  const receipts: RequestReceipt[] = [];
  const refused = Promise.withResolvers<never>();
  const session = fakeSession({ current: () => undefined, acquire: () => refused.promise });
  const { gateway, sending } = await gatewayFixture(t, {
    session,
    deps: { receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) } },
  });
  const asking = sending(post().slice(0, -10));
  await eventually('the request', () => gateway.active() === 1);
  refused.reject(new PrivatemodeError('not_ready', 'not yet'));
  await asking.until(/not_ready/);
  asking.send('0123456789');
  await asking.ended;
  await eventually('the receipt', () => receipts.length === 1);
  assert.equal(receipts[0]?.code, 'not_ready');
});

it('shutdown waits for the receipt of a request whose client left while the response arrived', async (t) => {
  const receipts: RequestReceipt[] = [];
  const { upstream, gateway, sending } = await gatewayFixture(t, {
    deps: { receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) } },
  });
  const begun = Promise.withResolvers<void>();
  upstream.on(async (scripted) => {
    await scripted.body();
    const headers = 'Content-Type: application/json\r\nPrivatemode-Encrypted: true\r\nContent-Length: 1000';
    await scripted.write(`HTTP/1.1 200 OK\r\n${headers}\r\n\r\n{"`);
    begun.resolve();
  });
  const asking = sending(post());
  await begun.promise;
  const draining = gateway.drain(5_000);
  asking.socket.destroy();
  await draining;
  assert.deepEqual(
    receipts.map(({ outcome }) => outcome),
    ['aborted'],
  );
});
