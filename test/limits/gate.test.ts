/** A gateway whose requests need permits: when each gets one, what a refusal looks like, and that every permit comes back once. */
import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { EventEmitter } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { GatewayDeps } from '../../lib/gateway/deps.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import type { Permit } from '../../lib/limits/limits.ts';
import { createRequestGate, type Entering, type RequestGate } from '../../lib/limits/request-gate.ts';
import type { RequestReceipt } from '../../lib/transparency/receipt.ts';
import type { TestGatewayOptions } from '../support/doors/gateway.ts';
import {
  answerTo,
  chatBody,
  codeOf,
  type Fixture,
  gatewayFixture,
  get,
  post,
  until,
} from '../support/doors/gateway-fixture.ts';
import { PLAIN_MEMBERS } from '../support/remote/plain-members.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  chatStream,
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';
import { chatChunk } from '../support/remote/sealed-stream.ts';

const MODELS = '{"object":"list","data":[]}';
const REFUSAL = () => new PrivatemodeError('max_concurrent_reached', 'so it is', { retryAfter: 7 });

/** `entered` has who asked, `released` the tokens of each release. */
function recordingGate(admit: (entering: Entering, permit: Permit) => Permit | Promise<Permit>) {
  const entered: (string | undefined)[] = [];
  const released: number[] = [];
  const gate: RequestGate = {
    enter(entering) {
      entered.push(entering.client?.name);
      return admit(entering, { release: (tokens) => void released.push(tokens) });
    },
  };
  return { gate, entered, released };
}

interface Scene extends Fixture {
  readonly receipts: RequestReceipt[];
}

async function scene(
  t: TestContext,
  gate: RequestGate,
  { script, ...options }: Partial<TestGatewayOptions> & { script?: Script; deps?: Partial<GatewayDeps> } = {},
): Promise<Scene> {
  const receipts: RequestReceipt[] = [];
  const fixture = await gatewayFixture(t, {
    ...options,
    deps: {
      gate,
      receipts: { instance: 'abcdefghijkl', add: (receipt) => receipts.push(receipt) },
      ...options.deps,
    },
  });
  fixture.upstream.on(script ?? answering);
  return { ...fixture, receipts };
}

const answering: Script = async (scripted) => {
  const body = await scripted.body();
  if (scripted.request.method === 'GET')
    await scripted.write(http(200, MODELS, { 'Content-Type': 'application/json' }));
  else await scripted.write(body.includes('"stream":true') ? chatStream(body) : completion(body));
};

/** A chat stream that tells its usage; without its end it stays open behind that. */
const streamWithUsage =
  (usage: object, { withoutEnd = false } = {}): Script =>
  async (scripted) => {
    const body = await scripted.body();
    const sealed = sealedAnswers(body);
    const closing = { ...chatChunk(''), choices: [], usage };
    const events = [sealed.chunk('hel'), sealed.chunk('lo', 'stop'), sealed.event(closing)];
    await scripted.write(STREAM_HEAD + events.map(chunked).join(''));
    if (!withoutEnd) await scripted.write(chunked(DONE) + LAST_CHUNK);
  };

const dialects: [path: string, type: (body: string) => unknown][] = [
  ['/v1/chat/completions', (body) => JSON.parse(body).error.type],
  ['/v1/messages', (body) => JSON.parse(body).type === 'error' && JSON.parse(body).error.type],
];

describe('a request that the gate refuses', { timeout: 30_000 }, () => {
  for (const [path, typeOf] of dialects) {
    for (const stream of [false, true]) {
      it(`is 429 with Retry-After in the dialect of ${path}${stream ? ', streamed' : ''}, and nothing is sent`, async (t) => {
        for (const admit of [
          () => {
            throw REFUSAL();
          },
          () => Promise.reject(REFUSAL()),
        ]) {
          const { gate, released } = recordingGate(admit);
          const { ask, upstream, receipts, gateway } = await scene(t, gate);
          const answer = await ask(post(chatBody({ stream }), { path }));
          assert.deepEqual(
            [answer.status, codeOf(answer), answer.headers['retry-after'], typeOf(answer.body)],
            [429, 'max_concurrent_reached', '7', 'rate_limit_error'],
          );
          assert.equal(answer.headers['privatemode-proxy-error'], 'max_concurrent_reached');
          assert.equal(upstream.connections.total, 0);
          assert.deepEqual(released, []);
          await until(() => receipts.length === 1, 'no receipt');
          const { code, outcome, status, request } = receipts[0] as RequestReceipt;
          assert.deepEqual([code, outcome, status], ['max_concurrent_reached', 'refused', 429]);
          assert.equal(request.bytes, 0, 'its body was read');
          const [line] = gateway.logLines
            .map((text) => JSON.parse(text))
            .filter(({ msg }) => msg === 'Request ended');
          assert.deepEqual([line.outcome, line.code], ['refused', 'max_concurrent_reached']);
          assert.equal(gateway.counters.responses.get(429), 1);
        }
      });
    }
  }

  it('is answered before its body has come', async (t) => {
    const { gate } = recordingGate(() => {
      throw REFUSAL();
    });
    const { client } = await scene(t, gate);
    const asking = client();
    asking.send(post('', { headers: ['Content-Length: 100000'] }));
    const answer = await answerTo(asking, 900);
    assert.deepEqual([answer.status, answer.headers['connection']], [429, 'close']);
    await asking.ended;
  });

  it('leaves the connection usable where the body was there', async (t) => {
    let times = 0;
    const { gate, released } = recordingGate((_, permit) => {
      times += 1;
      if (times === 1) throw REFUSAL();
      return permit;
    });
    const { client } = await scene(t, gate);
    const asking = client();
    asking.send(get('/v1/models'));
    assert.equal((await answerTo(asking)).status, 429);
    const before = asking.received().length;
    asking.send(get('/v1/models'));
    await until(() => asking.received().slice(before).includes(MODELS), 'no answer');
    await until(() => released.length === 1, 'no release');
  });
});

describe('the gate', { timeout: 30_000 }, () => {
  it('is asked about what is forwarded or whose body is read, and about nothing else', async (t) => {
    const { gate, entered, released } = recordingGate((_, permit) => permit);
    const { ask } = await scene(t, gate);
    for (const path of ['/', '/healthz', '/readyz', '/v1', '/nothing']) await ask(get(path));
    assert.deepEqual(entered, []);
    const counting = post(chatBody(), { path: '/v1/messages/count_tokens' });
    const chats = [post(), post(chatBody({ stream: true }))];
    for (const request of [get('/v1/models'), get('/v1/models/m'), ...chats, counting])
      assert.equal((await ask(request)).status, 200);
    assert.deepEqual(entered, [undefined, undefined, undefined, undefined, undefined]);
    await until(() => released.length === 5, 'not all are released');
  });

  it('is asked with the client, once its token is known', async (t) => {
    const { gate, entered } = recordingGate((_, permit) => permit);
    const limits = { requestsPerMinute: 1, tokensPerDay: undefined, maxConcurrent: undefined };
    const ann = {
      ...{ name: 'ann', tokens: [], expires: undefined, models: undefined, endpoints: undefined },
      ...{ apiKey: undefined, sharedSalt: undefined, mixSalt: undefined, limits },
    };
    const { ask } = await scene(t, gate, { deps: { clients: { authenticate: () => ann } } });
    assert.equal((await ask(post())).status, 200);
    assert.deepEqual(entered, ['ann']);
  });

  it('is asked before anything of the body is read', async (t) => {
    const waiting = Promise.withResolvers<Permit>();
    const { gate, entered, released } = recordingGate((_, permit) => waiting.promise.then(() => permit));
    const { client, gateway, upstream, receipts } = await scene(t, gate, { maxBufferedBytes: 1_000_000 });
    const asking = client();
    const body = chatBody({ messages: [{ role: 'user', content: 'x'.repeat(200_000) }] });
    asking.send(post(body));
    await until(() => entered.length === 1, 'the gate was not asked');
    await new Promise((done) => setImmediate(done));
    assert.equal(gateway.counters.bufferedBytes, 0);
    assert.equal(upstream.connections.total, 0);
    waiting.resolve({ release() {} });
    assert.equal((await answerTo(asking)).status, 200);
    await until(() => receipts.length === 1, 'no receipt');
    assert.equal(receipts[0]?.request.bytes, body.length);
    assert.deepEqual(released.length, 1);
  });

  it('gets every byte through that came in short pieces while it was waited for', async (t) => {
    const waiting = Promise.withResolvers<void>();
    const { gate, entered } = recordingGate((_, permit) => waiting.promise.then(() => permit));
    const { client, receipts } = await scene(t, gate);
    const asking = client();
    const body = Buffer.from(chatBody());
    asking.send(post('', { headers: ['Transfer-Encoding: chunked'] }));
    await until(() => entered.length === 1, 'the gate was not asked');
    const pieces = [...body].map((byte) => chunked(String.fromCharCode(byte)));
    asking.send(pieces.slice(0, -1).join(''));
    asking.send(pieces.at(-1) as string);
    setImmediate(waiting.resolve);
    asking.send(LAST_CHUNK);
    assert.equal((await answerTo(asking)).status, 200);
    await until(() => receipts.length === 1, 'no receipt');
    assert.equal(receipts[0]?.request.bytes, body.length);
  });

  it('has short pieces joined that come while it is waited for: each would cost hundreds of bytes', async (t) => {
    const waiting = Promise.withResolvers<Permit>();
    const { gate } = recordingGate(() => waiting.promise);
    const { client, gateway } = await scene(t, gate);
    let pieces = 0;
    let arrived: IncomingMessage | undefined;
    const seen = (message: unknown): void => {
      const { request } = message as { request: IncomingMessage };
      if (request.socket.localPort !== gateway.port) return;
      arrived = request;
      EventEmitter.prototype.on.call(request, 'data', () => (pieces += 1)); // listens, and starts no flow
    };
    subscribe('http.server.request.start', seen);
    t.after(() => unsubscribe('http.server.request.start', seen));
    const asking = client();
    asking.send(post('', { headers: ['Transfer-Encoding: chunked'] }));
    await until(() => arrived !== undefined, 'the request did not come');
    asking.send(chunked('x').repeat(5_000));
    await until(() => arrived?.readableLength === 5_000, 'not all of it is in the buffer');
    waiting.resolve({ release() {} });
    asking.send(LAST_CHUNK);
    assert.equal((await answerTo(asking)).status, 400);
    assert.ok(pieces > 0 && pieces < 50, `${pieces} pieces were kept`);
  });
});

describe('the permit of a request comes back once', { timeout: 60_000 }, () => {
  const STREAM = post(chatBody({ stream: true }));
  const ends: [how: string, request: string | Buffer, script: Script, status: number, tokens: number][] = [
    [
      'complete',
      post(),
      async (scripted) => {
        const body = await scripted.body();
        const usage = { prompt_tokens: 30, completion_tokens: 4, total_tokens: 34 };
        const whole = {
          ...{ id: 'c', object: 'chat.completion', created: 1, model: 'm', usage },
          choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
        };
        await scripted.write(
          http(200, sealedAnswers(body).object(whole), { 'Content-Type': 'application/json' }),
        );
      },
      200,
      34,
    ],
    [
      'complete, streamed',
      STREAM,
      streamWithUsage({ prompt_tokens: 30, completion_tokens: 5, total_tokens: 35 }),
      200,
      35,
    ],
    ['complete, one of the counts known', STREAM, streamWithUsage({ prompt_tokens: 30 }), 200, 30],
    [
      'complete, with most of the prompt from the cache: it counts like the rest',
      STREAM,
      streamWithUsage({ prompt_tokens: 30, prompt_tokens_details: { cached_tokens: 28 } }),
      200,
      30,
    ],
    ['complete without a usage', STREAM, answering, 200, 0],
    ['with a list of models', get('/v1/models'), answering, 200, 0],
    ['with a 400 of ours', post('{'), answering, 400, 0],
    ['with a body that is too large', post('', { headers: ['Content-Length: 9999999'] }), answering, 413, 0],
    [
      'with an error of the service',
      post(),
      async (scripted) => {
        await scripted.body();
        await scripted.write(plainError(429, 'slow down'));
      },
      429,
      0,
    ],
    [
      'with a response that was tampered with',
      post(),
      async (scripted) => scripted.write(tampered(completion(await scripted.body()))),
      502,
      0,
    ],
    [
      'with a service that goes away',
      STREAM,
      async (scripted) => {
        await scripted.body();
        scripted.reset();
      },
      502,
      0,
    ],
    [
      'with a stream that breaks off behind its usage',
      STREAM,
      async (scripted) => {
        await streamWithUsage({ prompt_tokens: 30, completion_tokens: 6 }, { withoutEnd: true })(scripted);
        scripted.reset();
      },
      200,
      36,
    ],
  ];
  for (const [how, request, script, status, tokens] of ends) {
    it(how, async (t) => {
      const { gate, released } = recordingGate((_, permit) => permit);
      const { ask, gateway } = await scene(t, gate, { script });
      assert.equal((await ask(request)).status, status);
      await until(() => gateway.active() === 0 && released.length > 0, 'nothing was released');
      await new Promise((done) => setImmediate(done));
      assert.deepEqual(released, [tokens]);
    });
  }

  it('of Anthropic, streamed, with a client that leaves as soon as the tokens of its prompt are known', async (t) => {
    const { gate, released } = recordingGate((_, permit) => permit);
    const { client, upstream } = await scene(t, gate, {
      async script(scripted) {
        const sealed = sealedAnswers(await scripted.body(), PLAIN_MEMBERS.MR);
        const message = {
          ...{ id: 'msg_1', type: 'message', role: 'assistant', content: [], model: 'm' },
          ...{ stop_reason: null, stop_sequence: null, usage: { input_tokens: 9, output_tokens: 1 } },
        };
        const start = sealed.event({ type: 'message_start', message }, 'message_start');
        await scripted.write(STREAM_HEAD + chunked(start));
      },
    });
    const asking = client();
    asking.send(post(chatBody({ stream: true }), { path: '/v1/messages' }));
    await asking.until(/message_start/);
    assert.deepEqual(released, []);
    asking.socket.destroy();
    await until(() => released.length > 0, 'nothing was released');
    assert.deepEqual(released, [10]);
    assert.equal(upstream.requests.length, 1);
  });

  it('with a client that leaves behind the usage and before the end: its tokens count', async (t) => {
    const { gate, released } = recordingGate((_, permit) => permit);
    const { client } = await scene(t, gate, {
      script: streamWithUsage({ prompt_tokens: 30, completion_tokens: 7 }, { withoutEnd: true }),
    });
    const asking = client();
    const body = chatBody({ stream: true, stream_options: { include_usage: true } });
    asking.send(post(body));
    await asking.until(/"completion_tokens":7/);
    asking.socket.destroy();
    await until(() => released.length > 0, 'nothing was released');
    assert.deepEqual(released, [37]);
  });

  it('with a client that leaves before the service has said anything', async (t) => {
    const { gate, released } = recordingGate((_, permit) => permit);
    const { client, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    const asking = client();
    asking.send(post());
    await until(() => upstream.requests.some(({ complete }) => complete), 'it was not sent');
    asking.socket.destroy();
    await until(() => released.length > 0, 'nothing was released');
    assert.deepEqual(released, [0]);
  });

  it('with a client that leaves while it sends', async (t) => {
    const { gate, entered, released } = recordingGate((_, permit) => permit);
    const { client } = await scene(t, gate);
    const asking = client();
    asking.send(post('{"model":', { headers: ['Content-Length: 100'] }));
    await until(() => entered.length === 1, 'the gate was not asked');
    asking.socket.destroy();
    await until(() => released.length > 0, 'nothing was released');
    assert.deepEqual(released, [0]);
  });

  it('with a shutdown that loses patience', async (t) => {
    const { gate, released } = recordingGate((_, permit) => permit);
    const { client, gateway, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    const asking = client();
    asking.send(post());
    await until(() => upstream.requests.some(({ complete }) => complete), 'it was not sent');
    await gateway.drain(0);
    assert.equal((await answerTo(asking)).status, 503);
    await until(() => released.length > 0, 'nothing was released');
    assert.deepEqual(released, [0]);
  });

  it('also where it arrives after the client has left', async (t) => {
    const waiting = Promise.withResolvers<void>();
    const { gate, entered, released } = recordingGate((_, permit) => waiting.promise.then(() => permit));
    const { client, gateway, upstream } = await scene(t, gate);
    const asking = client();
    asking.send(post());
    await until(() => entered.length === 1, 'the gate was not asked');
    asking.socket.destroy();
    await until(() => gateway.active() === 0, 'the exchange never ended');
    waiting.resolve();
    await until(() => released.length > 0, 'nothing was released');
    assert.deepEqual([released, upstream.connections.total], [[0], 0]);
  });
});

describe('the queue of --max-in-flight before a gateway', { timeout: 30_000 }, () => {
  it('is left by a client that goes away, and by all at the end of a shutdown', async (t) => {
    const queue = createFairQueue(1);
    const gate = createRequestGate({ counts: createRequestCounts(), queue });
    const { client, gateway, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    const [first, second, third] = [client(), client(), client()];
    first?.send(post());
    await until(() => upstream.requests.length === 1, 'it was not sent');
    second?.send(post());
    third?.send(post());
    await until(() => queue.size().waiting === 2, 'nobody waits');
    second?.socket.destroy();
    await until(() => queue.size().waiting === 1, 'it still waits');
    await gateway.drain(0);
    const answer = await answerTo(third as NonNullable<typeof third>);
    assert.deepEqual([answer.status, codeOf(answer)], [503, 'shutting_down']);
    assert.deepEqual(queue.size(), { running: 0, waiting: 0, clients: 0 });
    assert.equal(upstream.requests.length, 1);
  });

  it('refuses with 429 and Retry-After who finds no place in time', async (t) => {
    const queue = createFairQueue(1, { wait: 20 });
    const gate = createRequestGate({ counts: undefined, queue });
    const { client, ask, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    client().send(post());
    await until(() => upstream.requests.length === 1, 'it was not sent');
    for (const [path, typeOf] of dialects) {
      const answer = await ask(post(chatBody({ stream: true }), { path }));
      assert.deepEqual(
        [answer.status, codeOf(answer), answer.headers['retry-after'], typeOf(answer.body)],
        [429, 'max_in_flight_reached', '2', 'rate_limit_error'],
      );
    }
  });
});
