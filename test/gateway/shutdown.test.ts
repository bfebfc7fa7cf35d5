/**
 * A shutdown of the gateway and its listener: streams may finish, what is left then is told in its client's
 * words. The program is test/e2e/shutdown.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import { fakeSession } from '../support/doors/gateway.ts';
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
import { saying } from '../support/remote/scripted-upstream.ts';
import {
  beginning,
  chunked,
  completion,
  DONE,
  inTwoParts,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const SHUTDOWN = new PrivatemodeError('shutting_down', 'the grace is over');
const STREAMING = chatBody({ stream: true });

/** ms; so long that no load on the machine is taken for it. Nothing but what waits for it takes so long. */
const GRACE = 600_000;

/** A fixture, and the receipts of its requests. */
async function withReceipts(t: Parameters<typeof gatewayFixture>[0], session = fakeSession()) {
  const receipts: RequestReceipt[] = [];
  const add = (receipt: RequestReceipt): unknown => receipts.push(receipt);
  const deps = { receipts: { instance: 'abcdefghijkl', add } };
  return { ...(await gatewayFixture(t, { session, deps })), receipts };
}

describe('shutdown', () => {
  it('lets a stream finish, and then ends its keep-alive connection at once', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const go = Promise.withResolvers<void>();
    upstream.on(inTwoParts(go.promise));
    const asking = sending(post(STREAMING));
    await asking.until(/"hel"/);
    const draining = gateway.drain(GRACE);
    assert.equal(await rawClient(gateway.port).ended, 'ECONNREFUSED', 'the port is open');
    go.resolve();
    await draining;
    const answer = await answerTo(asking);
    assert.ok(answer.complete && answer.body.endsWith(DONE));
    assert.equal(answer.headers['connection'], 'keep-alive');
    assert.equal(await asking.ended, 'end');
  });

  it('lets a whole response finish, which has Connection: close, and ends idle connections at once', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const idle = sending(get('/healthz'));
    await idle.until(/200 OK/);
    const go = Promise.withResolvers<void>();
    upstream.on((scripted) => go.promise.then(() => saying(completion)(scripted)));
    const asking = sending(post());
    await eventually('the request', () => upstream.requests[0]?.complete === true);
    const draining = gateway.drain(GRACE);
    assert.equal(await idle.ended, 'end');
    go.resolve();
    const answer = await answerTo(asking);
    assert.deepEqual([answer.status, answer.headers['connection']], [200, 'close']);
    await draining;
  });

  it('answers the first request on a connection that was open before, and ends that connection', async (t) => {
    const { gateway, client, ask } = await gatewayFixture(t, { times: { firstRequest: GRACE } });
    const asking = client();
    await ask(get('/healthz')); // after which the listener has that connection, too
    const draining = gateway.drain(GRACE);
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
    const begun = performance.now();
    await gateway.drain(200);
    assert.ok(performance.now() - begun > 190);
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    assert.match(body, /\n\ndata: \{"error":\{.*"code":"shutting_down"\}\}\n\n$/);
    assert.equal(upstream.connections.open, 0);
  });

  const never = new Promise<never>(() => {});
  const unverified = fakeSession({
    acquire: ({ waiter: { signal } = {} }) =>
      new Promise((_, reject) =>
        signal?.addEventListener('abort', () => reject(signal.reason), { once: true }),
      ),
  });
  const denied = { answers: plainError(500, 'no secret for ID "x"') };
  type Waiting = readonly [
    name: string,
    where: (fixture: Fixture) => boolean,
    options?: Parameters<typeof gatewayFixture>[1],
    request?: Buffer,
  ];
  const isSent = ({ upstream }: Fixture): boolean => upstream.requests[0]?.complete === true;
  const waiting: readonly Waiting[] = [
    ['waits for its response', isSent],
    [
      'has received a part of a whole response',
      ({ gateway }) => gateway.heldResponses.bufferedBytes > 0,
      { answers: (request) => completion(request).slice(0, -20) },
    ],
    [
      'is still being uploaded',
      ({ gateway }) => gateway.counters.bufferedBytes > 0,
      {},
      post(chatBody(), { headers: ['Content-Length: 100000'] }),
    ],
    ['waits for the remote to be verified', ({ gateway }) => gateway.active() === 1, { session: unverified }],
    [
      'waits for a new secret',
      isSent,
      { ...denied, session: fakeSession({ renewAfterDenial: () => never }) },
    ],
  ];
  for (const [name, where, options = {}, request = post()] of waiting) {
    it(`gives 503 to a request that ${name}`, async (t) => {
      const fixture = await gatewayFixture(t, options);
      const asking = fixture.sending(request);
      await eventually('the request', () => where(fixture));
      await fixture.gateway.drain(50);
      const answer = await answerTo(asking);
      assertError(answer, 503, 'shutting_down');
      assert.equal(answer.headers['retry-after'], '2');
      assert.equal(answer.headers['connection'], 'close');
    });
  }

  it('is not blocked by a client that does not read the end of its stream', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t, { times: { farewell: 100 } });
    let [written, last] = [0, performance.now()];
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (; ; written++) {
        await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
        last = performance.now();
      }
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    await eventually('full buffers', () => written > 20 && performance.now() - last > 200);
    await gateway.drain(50);
    assert.equal(gateway.active(), 0);
  });

  it('waits for the receipt of a request whose client left while the response arrived', async (t) => {
    const { upstream, gateway, sending, receipts } = await withReceipts(t);
    upstream.answers((request) => completion(request).slice(0, -20));
    const asking = sending(post());
    await eventually('its beginning', () => gateway.heldResponses.bufferedBytes > 0);
    const draining = gateway.drain(GRACE);
    asking.socket.destroy();
    await draining;
    assert.deepEqual(
      receipts.map(({ outcome }) => outcome),
      ['aborted'],
    );
  });
});

describe('the signal of a shutdown', () => {
  it('keeps a request from being sent that comes after it', async (t) => {
    const terminate = AbortSignal.abort(SHUTDOWN);
    const { upstream, ask } = await gatewayFixture(t, { answers: completion, deps: { terminate } });
    for (const request of [post(), get('/v1/models')]) assertError(await ask(request), 503, 'shutting_down');
    assert.equal(upstream.requests.length, 0);
  });

  it('ends a stream if the shutdown fires while its response begins', async (t) => {
    const terminate = new AbortController();
    const { ask } = await gatewayFixture(t, {
      answers: beginning,
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
    assert.match((await ask(post(STREAMING))).body, /"code":"shutting_down"/);
  });
});

it('a body that still arrives when its request fails is not read on: its receipt has its digest', async (t) => {
  const refused = Promise.withResolvers<never>();
  const session = fakeSession({ current: () => undefined, acquire: () => refused.promise });
  const { gateway, sending, receipts } = await withReceipts(t, session);
  const asking = sending(post().slice(0, -10));
  await eventually('the request', () => gateway.active() === 1);
  refused.reject(new PrivatemodeError('not_ready', 'not yet'));
  await asking.until(/not_ready/);
  asking.send('0123456789');
  await asking.ended;
  await eventually('the receipt', () => receipts.length === 1);
  assert.equal(receipts[0]?.code, 'not_ready');
});
