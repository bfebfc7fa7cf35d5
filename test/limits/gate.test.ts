/**
 * A gateway whose requests need permits: when each asks for one, and that every permit comes back once. What
 * a refusal looks like is in refusals.test.ts.
 */

import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { createRequestCounts } from '../../lib/limits/count-requests.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import type { Permit } from '../../lib/limits/limits.ts';
import { createRequestGate, type Entering, type RequestGate } from '../../lib/limits/request-gate.ts';
import type { RequestReceipt } from '../../lib/receipts/receipt.ts';
import type { TestGatewayOptions } from '../support/doors/gateway.ts';
import {
  answerTo,
  chatBody,
  codeOf,
  type Fixture,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { PLAIN_MEMBERS } from '../support/remote/endpoints.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  chatStream,
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';
import { chatChunk } from '../support/remote/sealed-stream.ts';

const MODELS = '{"object":"list","data":[]}';

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
  { script, ...options }: Partial<TestGatewayOptions> & { script?: Script } = {},
): Promise<Scene> {
  const receipts: RequestReceipt[] = [];
  const add = (receipt: RequestReceipt) => receipts.push(receipt);
  const deps = { gate, receipts: { instance: 'abcdefghijkl', add } };
  const fixture = await gatewayFixture(t, { ...options, deps });
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

/** An Anthropic message, as far as the first event of its stream tells it. */
const MESSAGE = {
  ...{ id: 'msg_1', type: 'message', role: 'assistant', content: [], model: 'm' },
  ...{ stop_reason: null, stop_sequence: null, usage: { input_tokens: 9, output_tokens: 1 } },
};
const anthropicStart: Script = async (scripted) => {
  const sealed = sealedAnswers(await scripted.body(), PLAIN_MEMBERS.MR);
  const start = sealed.event({ type: 'message_start', message: MESSAGE }, 'message_start');
  await scripted.write(STREAM_HEAD + chunked(start));
};

describe('the gate of the limits', { timeout: 600_000 }, () => {
  it('is asked about requests that are forwarded or whose body is read, and about no others', async (t) => {
    const { gate, entered, released } = recordingGate((_, permit) => permit);
    const { ask } = await scene(t, gate);
    for (const path of ['/', '/healthz', '/readyz', '/v1', '/nothing']) await ask(get(path));
    assert.deepEqual(entered, []);
    const counting = post(chatBody(), { path: '/v1/messages/count_tokens' });
    const chats = [post(), post(chatBody({ stream: true }))];
    for (const request of [get('/v1/models'), get('/v1/models/m'), ...chats, counting])
      assert.equal((await ask(request)).status, 200);
    assert.deepEqual(entered, [undefined, undefined, undefined, undefined, undefined]);
    await eventually('not all are released', () => released.length === 5);
  });

  it('is asked before anything of the body is read', async (t) => {
    const waiting = Promise.withResolvers<Permit>();
    const { gate, entered, released } = recordingGate((_, permit) => waiting.promise.then(() => permit));
    const { client, gateway, upstream, receipts } = await scene(t, gate, {
      settings: { maxBufferedBytes: 1_000_000 },
    });
    const asking = client();
    const body = chatBody({ messages: [{ role: 'user', content: 'x'.repeat(200_000) }] });
    asking.send(post(body));
    await eventually('the gate was not asked', () => entered.length === 1);
    await new Promise((done) => setImmediate(done));
    assert.equal(gateway.counters.bufferedBytes, 0);
    assert.equal(upstream.connections.total, 0);
    waiting.resolve({ release() {} });
    assert.equal((await answerTo(asking)).status, 200);
    await eventually('no receipt', () => receipts.length === 1);
    assert.equal(receipts[0]?.request.bytes, body.length);
    assert.deepEqual(released.length, 1);
  });
});

describe('the permit of a request is released once, with its count of tokens', { timeout: 600_000 }, () => {
  const STREAM = post(chatBody({ stream: true }));
  const ANTHROPIC_STREAM = post(chatBody({ stream: true }), { path: '/v1/messages' });
  const OPENAI = { prompt_tokens: 30, completion_tokens: 5, total_tokens: 35 };
  const CUT = { prompt_tokens: 30, completion_tokens: 6 };
  const whole: Script = async (scripted) => {
    const completed = {
      ...{ id: 'c', object: 'chat.completion', created: 1, model: 'm', usage: OPENAI },
      choices: [{ index: 0, message: { role: 'assistant', content: 'hi' }, finish_reason: 'stop' }],
    };
    const sealed = sealedAnswers(await scripted.body()).object(completed);
    await scripted.write(http(200, sealed, { 'Content-Type': 'application/json' }));
  };
  const forged: Script = async (scripted) => scripted.write(tampered(completion(await scripted.body())));
  const broken: Script = async (scripted) => {
    await streamWithUsage(CUT, { withoutEnd: true })(scripted);
    scripted.reset();
  };
  const ends: [how: string, request: string | Buffer, script: Script, status: number, tokens: number][] = [
    ['after a complete answer', post(), whole, 200, 35],
    ['after a complete stream', STREAM, streamWithUsage(OPENAI), 200, 35],
    ['after a 400 of the gateway', post('{'), answering, 400, 0],
    ['after a response that was tampered with', post(), forged, 502, 0],
    ['after a stream that broke off once it had given its usage', STREAM, broken, 200, 36],
  ];
  for (const [how, request, script, status, tokens] of ends) {
    it(`${how}: ${tokens} tokens`, async (t) => {
      const { gate, released } = recordingGate((_, permit) => permit);
      const { ask, gateway } = await scene(t, gate, { script });
      assert.equal((await ask(request)).status, status);
      await eventually('nothing was released', () => gateway.active() === 0 && released.length > 0);
      await new Promise((done) => setImmediate(done));
      assert.deepEqual(released, [tokens]);
    });
  }

  const finish: Script = async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    const events = [sealed.chunk('hel'), sealed.event(chatChunk('lo', 'stop', 9))];
    await scripted.write(STREAM_HEAD + events.map(chunked).join(''));
  };
  const withUsage = post(chatBody({ stream: true, stream_options: { include_usage: true } }));
  const openEnd = streamWithUsage({ prompt_tokens: 30, completion_tokens: 7 }, { withoutEnd: true });
  for (const [when, request, script, seen, tokens] of [
    ['an Anthropic stream that had told its prompt', ANTHROPIC_STREAM, anthropicStart, /message_start/, 10],
    ['a stream at its finish, before the closing chunk', STREAM, finish, /"finish_reason":"stop"/, 12],
    ['between the usage and the end of a stream', withUsage, openEnd, /"completion_tokens":7/, 37],
  ] as const) {
    it(`after the client left ${when}: ${tokens} tokens`, async (t) => {
      const { gate, released } = recordingGate((_, permit) => permit);
      const { sending, receipts } = await scene(t, gate, { script });
      const asking = sending(request);
      await asking.until(seen);
      assert.deepEqual(released, []);
      asking.socket.destroy();
      await eventually('nothing was released', () => released.length > 0);
      assert.deepEqual(released, [tokens]);
      await eventually('no receipt', () => receipts.length === 1);
      const { in: prompt, out } = receipts[0]?.tokens ?? {};
      assert.equal((prompt ?? 0) + (out ?? 0), tokens);
    });
  }

  it('after the client left before the service said anything, or while it sent the body: 0 tokens', async (t) => {
    const { gate, entered, released } = recordingGate((_, permit) => permit);
    const { sending, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    const [asking, uploading] = [sending(post()), sending(post('{', { headers: ['Content-Length: 100'] }))];
    await eventually('it was not sent', () => upstream.requests.some(({ complete }) => complete));
    await eventually('the gate was not asked', () => entered.length === 2);
    for (const { socket } of [asking, uploading]) socket.destroy();
    await eventually('nothing was released', () => released.length > 1);
    assert.deepEqual(released, [0, 0]);
  });

  it('after a shutdown that did not wait for the request: 0 tokens', async (t) => {
    const { gate, released } = recordingGate((_, permit) => permit);
    const { sending, gateway, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    const asking = sending(post());
    await eventually('it was not sent', () => upstream.requests.some(({ complete }) => complete));
    await gateway.drain(0);
    assert.equal((await answerTo(asking)).status, 503);
    await eventually('nothing was released', () => released.length > 0);
    assert.deepEqual(released, [0]);
  });
});

describe('the queue of --max-in-flight before a gateway', { timeout: 600_000 }, () => {
  it('drops a request whose client leaves; at the end of a shutdown a waiting request gets 503 shutting_down', async (t) => {
    const queue = createFairQueue(1, systemClock);
    const gate = createRequestGate({ counts: createRequestCounts({ clock: systemClock }), queue });
    const { client, gateway, upstream } = await scene(t, gate, { script: (scripted) => scripted.body() });
    const [first, second, third] = [client(), client(), client()];
    first?.send(post());
    await eventually('it was not sent', () => upstream.requests.length === 1);
    second?.send(post());
    third?.send(post());
    await eventually('nobody waits', () => queue.size().waiting === 2);
    second?.socket.destroy();
    await eventually('it still waits', () => queue.size().waiting === 1);
    await gateway.drain(0);
    const answer = await answerTo(third as NonNullable<typeof third>);
    assert.deepEqual([answer.status, codeOf(answer)], [503, 'shutting_down']);
    assert.deepEqual(queue.size(), { running: 0, waiting: 0 });
    assert.equal(upstream.requests.length, 1);
  });
});
