/**
 * The upstream request: nothing is sent before its body can be attached, a body that fails takes it down, and
 * after a reset it is sent once more or not.
 */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { settle } from '../support/remote/fake-clock.ts';
import { type Script, type Scripted, saying } from '../support/remote/scripted-upstream.ts';
import { completion, exchangeOf, openedRequest } from '../support/remote/sealed-answers.ts';

describe('the gateway', () => {
  it('sends each of 20 simultaneous requests with its own head and body', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: completion });
    const names = Array.from({ length: 20 }, (_, i) => `model-${i}`);
    await Promise.all(names.map((model) => ask(post(chatBody({ model, user: `for ${model}` })))));
    const seen = upstream.requests.map(({ headers, body }) => [
      headers['privatemode-target-model'],
      openedRequest(body).get('user'),
    ]);
    assert.deepEqual(seen.toSorted(), names.map((name) => [name, JSON.stringify(`for ${name}`)]).toSorted());
  });
});

describe('an upstream request whose body cannot be sealed to its end', () => {
  it('is cut off, and the client gets 500 internal', async (t) => {
    const headSeen = Promise.withResolvers<void>();
    const remoteClosed = Promise.withResolvers<void>();
    async function* failing(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(100, 'x');
      await headSeen.promise;
      throw new PrivatemodeError('internal', 'the seal broke');
    }
    const { upstream, ask } = await gatewayFixture(t, {
      wrapUpstream: (real) => ({
        ...real,
        send: (res, attempt) => real.send(res, { ...attempt, body: Readable.from(failing()) }),
      }),
    });
    upstream.on(({ closed }) => {
      headSeen.resolve();
      void closed.then(remoteClosed.resolve);
    });
    assertError(await ask(post()), 500, 'internal');
    await remoteClosed.promise;
    assert.deepEqual(
      upstream.requests.map(({ complete }) => complete),
      [false],
    );
  });
});

/** Does that when it has the whole request. */
const after =
  (act: (scripted: Scripted) => unknown): Script =>
  async (scripted) => {
    await scripted.body();
    await act(scripted);
  };

/** The remote is at work when it resets. */
const resetAfter = (sent: string): Script =>
  after(async (scripted) => {
    await scripted.write(sent);
    await delay(50); // until that has been read, which nothing tells
    scripted.reset();
  });

const LARGE = chatBody({ user: 'x'.repeat(6_000_000) });
const settings = { maxBodyBytes: 10_000_000 };
describe('a second attempt', { concurrency: true }, () => {
  it('follows a reset before any answer, on a new connection and with a new nonce', async (t) => {
    const { upstream, gateway, ask } = await gatewayFixture(t);
    upstream.on(
      after((scripted) => scripted.reset()),
      saying(completion),
    );
    const answer = await ask(post());
    assert.equal(JSON.parse(answer.body).choices[0].message.content, 'hello', 'not opened with its nonce');
    assert.deepEqual([...gateway.counters.upstreamRetries], [['connection_reset', 1]]);

    const [first, second] = upstream.requests;
    assert.equal(upstream.requests.length, 2);
    assert.notEqual(second?.connection, first?.connection);
    const nonces = upstream.requests.map(({ body }) => exchangeOf(body).nonce.toString('hex'));
    assert.notEqual(nonces[0], nonces[1]);
    const attempts = upstream.requests.map(({ headers }) => headers['privatemode-user-request-id']);
    assert.deepEqual(
      attempts.map((id) => id?.at(-1)),
      ['0', '1'],
    );
    assert.equal(attempts[0]?.slice(0, -1), attempts[1]?.slice(0, -1));
  });

  const final: [
    name: string,
    script: Script,
    status: number,
    code: string,
    asked?: Parameters<typeof gatewayFixture>[1] & { readonly body?: string },
  ][] = [
    ['a clean close before any answer', after((scripted) => scripted.end()), 502, 'upstream_reset'],
    [
      'a reset after an informational answer',
      resetAfter('HTTP/1.1 102 Processing\r\n\r\n'),
      502,
      'upstream_reset',
    ],
    ['a reset after half a head', resetAfter('HTTP/1.1 200 OK\r\nContent-Ty'), 502, 'upstream_reset'],
    [
      'a reset during the upload',
      async (scripted) => {
        scripted.pause();
        await delay(200); // the upload fills what buffers there are
        scripted.reset();
      },
      ...([502, 'upstream_closed_during_upload', { settings, body: LARGE }] as const),
    ],
    [
      'an answer that is no HTTP',
      after((scripted) => scripted.write('SSH-2.0-OpenSSH_9.9\r\n')),
      502,
      'response_malformed',
    ],
  ];
  for (const [name, script, status, code, { body, ...options } = {}] of final) {
    it(`does not follow ${name}`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, options);
      upstream.on(script);
      assertError(await ask(post(body)), status, code);
      assert.equal(upstream.requests.length, 1);
    });
  }

  it('does not follow if the client has left', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t);
    const left = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      await scripted.body();
      asking.socket.destroy();
      await left.promise;
      scripted.reset();
    });
    const asking = sending(post());
    await eventually('the abort to be counted', () => gateway.counters.clientAborts.size > 0);
    left.resolve();
    await eventually('the end of the connection', () => upstream.connections.open === 0);
    await settle();
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });
});
