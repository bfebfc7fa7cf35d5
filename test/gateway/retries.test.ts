/**
 * The upstream request: nothing is sent before its body can be attached, a body that fails takes it down; and
 * the retry table (docs/protocol/inference.md section 10): what is sent a second time, and what never is.
 */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { EPOCH, type FakeSession, fakeSession, NEXT_EPOCH, NEXT_SECRET } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import { type Reply, type Script, type Scripted, saying } from '../support/remote/scripted-upstream.ts';
import {
  COMPLETION,
  chatStream,
  chunked,
  completion,
  DONE,
  exchangeOf,
  http,
  LAST_CHUNK,
  openedRequest,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

it('a request whose body cannot be sealed to its end is cut off, and the client gets 500 internal', async (t) => {
  const headSeen = Promise.withResolvers<void>();
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
  upstream.on(() => headSeen.resolve());
  assertError(await ask(post()), 500, 'internal');
  await eventually('the end of the connection', () => upstream.connections.open === 0);
  assert.deepEqual(
    upstream.requests.map(({ complete }) => complete),
    [false],
  );
});

it('a response whose secret is denied ends the denial only if it authenticates, also behind a comment', async (t) => {
  const known: string[] = [];
  const session = fakeSession({ current: () => undefined, authenticated: (id) => void known.push(id) });
  const { upstream, ask } = await gatewayFixture(t, { session });
  const streaming = post(chatBody({ stream: true }));
  const sealed = `i:n:${'0'.repeat(24)}:${'0'.repeat(64)}`;
  const forged = { id: 'c', choices: sealed, created: sealed, model: sealed, object: sealed };
  upstream.answers(STREAM_HEAD + chunked(`: hi\n\ndata: ${JSON.stringify(forged)}\n\n`) + LAST_CHUNK);
  await ask(streaming);
  assert.deepEqual(known, []);
  upstream.on(async (scripted) => {
    const answers = sealedAnswers(await scripted.body());
    await scripted.write(STREAM_HEAD + chunked(': hi\n\n'));
    for (const text of ['x', 'y']) await scripted.write(chunked(answers.chunk(text)));
    await scripted.write(chunked(answers.chunk('z', 'stop') + DONE) + LAST_CHUNK);
  });
  await ask(streaming);
  assert.deepEqual(known, [EPOCH.secretId]); // once, because the service may deny it again meanwhile
});

const ANSWERING = saying(completion);
const RESETTING: Script = async (scripted) => {
  await scripted.body();
  scripted.reset();
};
const LARGE = chatBody({ user: 'x'.repeat(6_000_000) });
const settings = { maxBodyBytes: 10_000_000 };
it('the rest of the body is sealed correctly although a stream has begun during the upload', async (t) => {
  const { upstream, client } = await gatewayFixture(t, { settings });
  const asking = client();
  const { promise: arrived, resolve: arrives, reject: lost } = Promise.withResolvers<Buffer>();
  upstream.on(async (scripted) => {
    scripted.pause();
    await scripted.write(STREAM_HEAD);
    await asking.until(/^HTTP\/1\.1 200 /);
    scripted.resume();
    scripted.body().then(arrives, lost);
    const body = await arrived;
    await scripted.write(chatStream(body).slice(STREAM_HEAD.length));
  });
  const messages = [{ role: 'user', content: 'x'.repeat(8_000_000) }];
  asking.send(post(chatBody({ messages, stream: true })));
  const answer = await answerTo(asking);
  assert.equal(openedRequest(await arrived).get('messages'), JSON.stringify(messages));
  assert.match(answer.body, /data: \[DONE\]\n\n$/);
});

describe('a second attempt', { concurrency: true }, () => {
  it('follows a reset before any answer, on a new connection and with a new nonce', async (t) => {
    const { upstream, gateway, ask } = await gatewayFixture(t);
    upstream.on(RESETTING, ANSWERING);
    const answer = await ask(post());
    assert.equal(JSON.parse(answer.body).choices[0].message.content, 'hello', 'not opened with its nonce');
    assert.deepEqual([...gateway.counters.upstreamRetries], [['connection_reset', 1]]);

    const [first, second, more] = upstream.requests;
    assert.equal(more, undefined);
    assert.notEqual(second?.connection, first?.connection);
    assert.notDeepEqual(exchangeOf(second?.body as Buffer).nonce, exchangeOf(first?.body as Buffer).nonce);
    const ids = [first, second].map((request) => request?.headers['privatemode-user-request-id']);
    assert.equal(ids[0]?.replace(/0$/, '1'), ids[1]);
  });

  it('does not follow a clean close before any answer, nor a reset during the upload', async (t) => {
    for (const [script, body, code] of [
      [(scripted: Scripted) => scripted.end(), chatBody(), 'upstream_reset'],
      [(scripted: Scripted) => scripted.reset(), LARGE, 'upstream_closed_during_upload'],
    ] as const) {
      const { upstream, ask } = await gatewayFixture(t, { settings });
      upstream.on(async (scripted) => {
        if (body !== LARGE) await scripted.body();
        else {
          scripted.pause();
          await delay(200); // the upload fills what buffers there are
        }
        script(scripted);
      });
      assertError(await ask(post(body)), 502, code);
      assert.equal(upstream.requests.length, 1);
    }
  });
});

const JSON_TYPE = { 'Content-Type': 'application/json' };
const NO_SECRET = 'getting secret for OCSP verification: no secret for ID "x"';

const noSecret = saying(plainError(500, NO_SECRET));
const answeringNext = saying((body) =>
  http(200, sealedAnswers(body, PLAIN_MEMBERS.R, NEXT_SECRET).object(COMPLETION), JSON_TYPE),
);

describe('the retry for a forgotten secret (no_secret)', { concurrency: true }, () => {
  it('seals the request again with a renewed secret, under a new nonce', async (t) => {
    const session = fakeSession();
    const { upstream, gateway, ask } = await gatewayFixture(t, { session });
    upstream.on(noSecret, answeringNext);
    const answer = await ask(post(chatBody(), { path: '/v1/chat/completions?key=x' }));
    assert.equal(answer.status, 200);
    for (const { target } of upstream.requests) assert.equal(target, '/v1/chat/completions');
    assert.equal(answer.headers['privatemode-proxy-secret-id'], NEXT_EPOCH.secretId);
    assert.deepEqual(session.rejected, [EPOCH.secretId]);
    assert.deepEqual([...gateway.counters.upstreamRetries], [['no_secret', 1]]);
    const [first, second] = upstream.requests;
    assert.equal(upstream.requests.length, 2);
    assert.equal(first?.headers['privatemode-secret-id'], EPOCH.secretId);
    assert.equal(second?.headers['privatemode-secret-id'], NEXT_EPOCH.secretId);
    assert.equal(exchangeOf(second?.body as Buffer).id, NEXT_EPOCH.secretId);
    assert.notDeepEqual(exchangeOf(second?.body as Buffer).nonce, exchangeOf(first?.body as Buffer).nonce);
  });

  it('counts the wait for the new secret as time of the proxy, not of the service', async (t) => {
    const session = fakeSession({ renewAfterDenial: () => delay(100, NEXT_EPOCH) });
    const { upstream, gateway, ask } = await gatewayFixture(t, { session });
    upstream.on(noSecret, answeringNext);
    await ask(post());
    await eventually('its line', () => /"sentMs":/.test(gateway.logLines.join('')));
    const sentMs = Number(/"sentMs":(\d+)/.exec(gateway.logLines.join(''))?.[1]);
    assert.ok(sentMs >= 99, `${sentMs} ms`);
  });

  it('happens after a refusal that is not marked as plain, or declared as events', async (t) => {
    for (const answer of [
      http(500, JSON.stringify({ error: { message: NO_SECRET } })),
      http(500, `data: ${NO_SECRET}\n\n`, { 'Content-Type': 'text/event-stream' }),
    ]) {
      const session = fakeSession();
      const { upstream, ask } = await gatewayFixture(t, { session });
      upstream.on(saying(answer), answeringNext);
      assert.equal((await ask(post())).status, 200);
      assert.deepEqual(session.rejected, [EPOCH.secretId]);
    }
  });

  it('does not happen without a new secret, and the client gets the reason for that', async (t) => {
    const failing: FakeSession = fakeSession({
      renewAfterDenial: async () => {
        throw new PrivatemodeError('attestation_failed', 'the evidence was rejected');
      },
    });
    const { upstream, gateway, ask } = await gatewayFixture(t, { session: failing });
    upstream.on(noSecret);
    assertError(await ask(post()), 400, 'attestation_failed');
    assert.equal(upstream.requests.length, 1);
    assert.equal(gateway.counters.upstreamRetries.size, 0);
  });

  it('only renews the secret if the first attempt was reset, and the client gets 503 secret_denied', async (t) => {
    const session = fakeSession();
    const { upstream, ask } = await gatewayFixture(t, { session });
    upstream.on(RESETTING, noSecret);
    const answer = await ask(post());
    assertError(answer, 503, 'secret_denied');
    assert.doesNotMatch(answer.body, /no secret for ID/);
    assert.deepEqual(session.rejected, [EPOCH.secretId]);
    assert.equal(upstream.requests.length, 2);
  });

  it('is not followed by a third attempt if it is reset', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(noSecret, RESETTING);
    assert.equal((await ask(post())).status, 502);
    assert.equal(upstream.requests.length, 2);
  });

  const others: [name: string, answer: Reply, request?: string][] = [
    ['status 503 with the words of no_secret', plainError(503, NO_SECRET)],
    ['status 400 with the words of no_secret', plainError(400, NO_SECRET)],
    ['status 500 with other words', plainError(500, 'no secrets at all')],
    ['a refusal that breaks off', plainError(500, NO_SECRET).slice(0, -1)],
    ['a sealed error of status 500', (body) => http(500, sealedAnswers(body).object({ error: NO_SECRET }))],
    ['a refusal of a request without encryption', plainError(500, NO_SECRET), get('/v1/models')],
  ];
  it('does not happen after another error', async (t) => {
    for (const [name, answer, request = post()] of others) {
      const session = fakeSession();
      const { upstream, ask } = await gatewayFixture(t, { session });
      upstream.on(async (scripted) => {
        await saying(answer)(scripted);
        scripted.end();
      });
      await ask(request);
      assert.equal(upstream.requests.length, 1, name);
      assert.deepEqual(session.rejected, [], name);
    }
  });
});

it('a response is reported to the session as authentic only if something in it was encrypted, and its secret was not in force', async (t) => {
  const form = '--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nx\r\n--b--\r\n';
  const unstructured = post(form, {
    path: '/unstructured/general/v0/general',
    headers: ['Content-Type: multipart/form-data; boundary=b'],
  });
  const none = () => undefined;
  for (const [current, request, answers, told] of [
    [none, post(), completion, [EPOCH.secretId]],
    [() => EPOCH, post(), completion, []],
    [none, unstructured, http(200, '[]', { ...JSON_TYPE, 'Privatemode-Encrypted': 'true' }), []],
    [none, post(), plainError(503, 'busy'), []],
  ] as const) {
    const authenticated: string[] = [];
    const session = fakeSession({ current, authenticated: (secretId) => authenticated.push(secretId) });
    const { ask } = await gatewayFixture(t, { session, answers });
    await ask(request);
    assert.deepEqual(authenticated, told);
  }
});

describe('stale keep-alive connections', { concurrency: true }, () => {
  for (const [name, close] of [
    ['closed', (scripted: Scripted) => scripted.end()],
    ['reset', (scripted: Scripted) => scripted.reset()],
  ] as const) {
    it(`a request on a connection that was kept or opened ahead, and is ${name} without an answer, is sent again on a new one`, async (t) => {
      for (const warmConnections of [0, 1]) {
        const { upstream, gateway, ask } = await gatewayFixture(t, { settings: { warmConnections } });
        if (warmConnections === 0) {
          upstream.on(ANSWERING);
          assert.equal((await ask(post())).status, 200);
        } else await eventually('a connection opened ahead', () => upstream.connections.secure === 1);
        upstream.on(close, ANSWERING);
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
      scripted.request.connection < 2 ? scripted.end() : ANSWERING(scripted),
    );
    await Promise.all([ask(post()), ask(post())]);
    assert.equal((await ask(post())).status, 200);
    assert.equal(upstream.requests.at(-1)?.connection, 2);
  });

  it('a connection that closes long after the request does not count as stale', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { times: { staleWithin: 50 } });
    upstream.on(ANSWERING, async (scripted) => {
      await scripted.body();
      await delay(100);
      scripted.end();
    });
    await ask(post());
    assert.equal((await ask(post())).status, 502);
    assert.equal(upstream.requests.length, 2);
  });
});
