/**
 * What an exchange leaves behind when it is over, however it ended: no listener, no open connection, no body.
 */
import assert from 'node:assert/strict';
import { getEventListeners, once } from 'node:events';
import { Readable } from 'node:stream';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { Attempt, Upstream } from '../../lib/network/upstream.ts';
import { EPOCH, fakeSession } from '../support/doors/gateway.ts';
import { assertError, chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  chatStream,
  chunked,
  completion,
  http,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });
const SHUTDOWN = new PrivatemodeError('shutting_down', 'the grace is over');
const listeners = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length;

/** Hands every attempt to `see` on its way. */
const seeing =
  (see: (attempt: Attempt) => Attempt | undefined) =>
  (real: Upstream): Upstream => ({
    ...real,
    send: (res, attempt) => real.send(res, see(attempt) ?? attempt),
  });

describe('the signals of a shutdown and of a client that leaves', {
  concurrency: true,
  timeout: 600_000,
}, () => {
  const afterBody =
    (text: (body: Buffer) => string): Script =>
    async (scripted) => {
      await scripted.write(text(await scripted.body()));
    };
  const scenes: [name: string, request: string | Buffer, script: Script][] = [
    ['a whole answer', post(), afterBody(completion)],
    ['a stream', post(STREAMING), afterBody(chatStream)],
    ['an answer that was tampered with', post(), afterBody((body) => tampered(completion(body)))],
    ['a plain error', post(), afterBody(() => plainError(429, 'slow down'))],
    ['a plain error whose text the gateway examines', post(), afterBody(() => plainError(500, 'no'))],
    ['a list of models', get('/v1/models'), (scripted) => scripted.write(http(200, '{"data":[]}'))],
    ['a redirect', post(), afterBody(() => http(302, ''))],
    [
      'a stream that breaks',
      post(STREAMING),
      async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
        scripted.reset();
      },
    ],
    ['a request that is refused', post('{'), () => {}],
  ];
  for (const [name, request, script] of scenes) {
    it(`have no listeners left after ${name}`, async (t) => {
      const terminate = new AbortController();
      const signals: AbortSignal[] = [];
      const { upstream, gateway, ask } = await gatewayFixture(t, {
        deps: { terminate: terminate.signal },
        wrapUpstream: seeing((attempt) => {
          signals.push(attempt.signal);
          return undefined;
        }),
      });
      const before = listeners(terminate.signal);
      upstream.on(script);
      await ask(request);
      await eventually('the end of the exchange', () => gateway.active() === 0);
      assert.equal(listeners(terminate.signal), before);
      assert.deepEqual(
        signals.map(listeners),
        signals.map(() => 0),
      );
    });
  }

  it('end a stream if the shutdown fires while its response begins', async (t) => {
    const terminate = new AbortController();
    const { upstream, ask } = await gatewayFixture(t, {
      deps: { terminate: terminate.signal },
      wrapUpstream: (real) => ({
        ...real,
        async send(res, attempt) {
          const answered = await real.send(res, attempt);
          terminate.abort(SHUTDOWN);
          return answered;
        },
      }),
    });
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    });
    assert.match((await ask(post(STREAMING))).body, /"code":"shutting_down"/);
  });

  it('keep a request from being sent if the shutdown fires before', async (t) => {
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

describe('the connection to the service', { concurrency: true, timeout: 600_000 }, () => {
  const endless = 'Transfer-Encoding: chunked\r\n\r\n1\r\n.\r\n';
  const refused: [name: string, head: string, code: string][] = [
    ['a redirect', 'HTTP/1.1 308 Moved\r\nLocation: /x\r\n', 'upstream_redirect'],
    ['a compressed answer', 'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n', 'response_malformed'],
    ['an answer in clear', 'HTTP/1.1 200 OK\r\nPrivatemode-Encrypted: false\r\n', 'response_not_encrypted'],
    [
      'an answer of another kind',
      'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n',
      'response_malformed',
    ],
  ];
  for (const [name, head, code] of refused) {
    it(`is closed during ${name} that never ends`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const over = Promise.withResolvers<void>();
      upstream.on(async (scripted) => {
        await scripted.body();
        await scripted.write(head + endless);
        void scripted.closed.then(over.resolve);
      });
      assertError(await ask(post()), 502, code);
      await over.promise;
    });
  }

  it('is closed if the rest of the request cannot be sealed after the response has begun', async (t) => {
    const answered = Promise.withResolvers<void>();
    async function* failing(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(10, 'x');
      await answered.promise;
      throw new PrivatemodeError('internal', 'the seal broke');
    }
    const { upstream, ask } = await gatewayFixture(t, {
      wrapUpstream: (real) => ({
        ...real,
        async send(res, attempt) {
          const response = await real.send(res, { ...attempt, body: Readable.from(failing()) });
          answered.resolve();
          return response;
        },
      }),
    });
    upstream.on((scripted) => scripted.write(STREAM_HEAD));
    const answer = await ask(post(STREAMING));
    assert.match(answer.body, /"code":"stream_unfinished"/);
    assert.deepEqual(
      upstream.requests.map(({ complete }) => complete),
      [false],
    );
  });
});

describe('a sealed body', { timeout: 600_000 }, () => {
  it('is released if its request breaks half-way', async (t) => {
    const bodies: Readable[] = [];
    async function* endless(): AsyncGenerator<Buffer> {
      yield Buffer.alloc(10, 'x');
      await new Promise(() => {});
    }
    const { upstream, ask } = await gatewayFixture(t, {
      wrapUpstream: seeing((attempt) => {
        const body = Readable.from(endless());
        bodies.push(body);
        return { ...attempt, body };
      }),
    });
    upstream.on((scripted) => scripted.reset());
    await ask(post());
    assert.ok(bodies.length > 0);
    for (const body of bodies)
      if (!body.destroyed) await once(body, 'close', { signal: AbortSignal.timeout(3_000) });
  });
});
