/**
 * The upstream request: nothing is sent before its body can be attached, a body that fails takes it down, and
 * after a reset it is sent once more or not.
 */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import {
  answerTo,
  assertError,
  chatBody,
  codeOf,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Script, Scripted } from '../support/remote/scripted-upstream.ts';
import { completion, exchangeOf, http, openedRequest } from '../support/remote/sealed-answers.ts';

describe('the gateway', () => {
  it('seals and sends a request with Expect like any other', async (t) => {
    const { upstream, client } = await gatewayFixture(t, { answers: completion });
    const asking = client();
    const request = post(chatBody(), { headers: ['Expect: 100-continue'] });
    const head = request.indexOf('\r\n\r\n') + 4;
    asking.send(request.subarray(0, head));
    await asking.until(/^HTTP\/1\.1 100 Continue\r\n\r\n$/);
    asking.send(request.subarray(head));
    await asking.until(/HTTP\/1\.1 200/);
    assert.equal(upstream.requests[0]?.headers['expect'], undefined);
    assert.equal(openedRequest(upstream.requests[0]?.body as Buffer).size, 2);
  });

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

describe("the client's request, while the gateway's own goes upstream", { concurrency: true }, () => {
  it('is logged and counted as HEAD even though a GET is sent upstream', async (t) => {
    const { upstream, gateway, sending } = await gatewayFixture(t, { answers: http(200, '{"data":[]}') });
    const asking = sending('HEAD /v1/models HTTP/1.1\r\nHost: localhost:8080\r\nConnection: close\r\n\r\n');
    assert.equal(await asking.ended, 'end');
    assert.match(asking.received(), /^HTTP\/1\.1 200 .*\r\n\r\n$/s);
    assert.equal(upstream.requests[0]?.method, 'GET');
    await eventually('the request to be counted', () => gateway.observations.length === 1);
    assert.deepEqual(
      [gateway.observations[0]?.method, gateway.observations[0]?.path],
      ['HEAD', '/v1/models'],
    );
    const line = gateway.logLines.find((each) => each.includes('"Request ended"'));
    assert.match(line ?? '', /"method":"HEAD","path":"\/v1\/models"/);
  });

  it('determines the format of an error by its Accept even if Accept is not forwarded', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: http(308, '') });
    const headers = ['Accept: text/event-stream', 'Connection: keep-alive, Accept'];
    const answer = await ask(post(chatBody(), { headers }));
    assert.equal(upstream.requests[0]?.headers['accept'], undefined);
    assert.equal(answer.headers['content-type'], 'text/event-stream');
    assert.match(answer.body, /^event: error\ndata: \{"error":.*"upstream_redirect"/);
  });

  it('is read to the end of its Content-Length even if the response comes earlier', async (t) => {
    const { sending } = await gatewayFixture(t, { answers: http(308, '') });
    const asking = sending(`${get('/v1/models', ['Content-Length: 20'])}half of it `);
    assert.equal(codeOf(await answerTo(asking)), 'upstream_redirect');
    assert.equal(await Promise.race([asking.ended, delay(100, 'open')]), 'open');
    asking.send('the rest.');
    assert.equal(await asking.ended, 'end');
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

const answering: Script = async (scripted) => scripted.write(completion(await scripted.body()));
/** Does that when it has the whole request. */
const after =
  (act: (scripted: Scripted) => unknown): Script =>
  async (scripted) => {
    await scripted.body();
    await act(scripted);
  };

const resetting = after((scripted) => scripted.reset());

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
    upstream.on(resetting, answering);
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

  it('uses no connection that was open before, even if one is idle', async (t) => {
    const { upstream, sending, ask } = await gatewayFixture(t);
    const reset = Promise.withResolvers<void>();
    const seen = Promise.withResolvers<void>();
    upstream.on(
      async (scripted) => {
        const body = await scripted.body();
        await seen.promise;
        await scripted.write(completion(body));
      },
      async (scripted) => {
        await scripted.body();
        seen.resolve();
        await reset.promise;
        scripted.reset();
      },
      answering,
    );
    const first = sending(post());
    await eventually('the first request', () => upstream.requests.length === 1);
    const second = ask(post());
    assert.equal((await answerTo(first)).status, 200);
    reset.resolve();
    assert.equal((await second).status, 200);
    assert.deepEqual(
      upstream.requests.map(({ connection }) => connection),
      [0, 1, 2],
    );
  });

  it('is the last attempt: a second reset becomes 502 upstream_reset', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(resetting);
    assertError(await ask(post()), 502, 'upstream_reset');
    assert.equal(upstream.requests.length, 2);
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
    [
      "the gateway's own time-out",
      () => {},
      504,
      'first_byte_timeout',
      { settings: { firstByteTimeout: 200 } },
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
    await delay(200); // in which a second request would arrive
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });
});
