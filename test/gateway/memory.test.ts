/** The memory that all bodies share, and all responses that are kept whole until they have authenticated. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { CollectedBody, Room } from '../../lib/gateway/memory.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  COMPLETION,
  chatStream,
  chunked,
  http,
  inTwoParts,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const MIB = 1024 * 1024;

const rooms = (count: number, used = { bufferedBytes: 0 }) => {
  const budget = { of: 'uploads', limit: 80 * MIB, used } as const;
  return { used, all: Array.from({ length: count }, () => new Room(budget)) };
};

const tooMany = (thrown: unknown): boolean => {
  assert.ok(thrown instanceof PrivatemodeError && thrown.code === 'too_many_uploads');
  assert.ok(thrown.retryAfter! >= 2 && thrown.retryAfter! <= 5, String(thrown.retryAfter));
  return true;
};

describe('the memory of bodies', () => {
  it('has an eighth reserved for small bodies', () => {
    const [large, other, small] = rooms(3).all;
    large!.grow(70 * MIB);
    assert.throws(() => other!.grow(2 * MIB), tooMany);
    small!.grow(MIB);
    assert.throws(() => small!.grow(1), tooMany, 'beyond 1 MiB it is large');
  });

  it('can be taken by one body as a whole, and not by a larger one', () => {
    const { all, used } = rooms(2);
    const [one, other] = all;
    one!.grow(80 * MIB);
    assert.throws(() => other!.grow(1), tooMany);
    assert.throws(() => one!.grow(1), { code: 'body_too_large', message: /--max-buffered-bytes/ });
    one!.release();
    one!.release();
    assert.equal(used.bufferedBytes, 0);
    other!.grow(80 * MIB);
    const response = new Room({ of: 'responses', limit: MIB, used: { bufferedBytes: 0 } });
    const refused = { code: 'response_too_large', message: /1048576 bytes \(--max-buffered-bytes\)/ };
    assert.throws(() => response.grow(MIB + 1), refused);
  });

  it('is given to nobody whose exchange is over', () => {
    const { all, used } = rooms(1);
    all[0]!.release();
    all[0]!.grow(MIB);
    assert.equal(used.bufferedBytes, 0);
  });
});

describe('a body that is collected', () => {
  it('holds what arrived and no byte more, whatever its chunks', () => {
    for (const sizes of [[1, 2, 3], [70_000, 1, 200_000], Array<number>(40_000).fill(1)]) {
      const chunks = sizes.map((size, i) => Buffer.alloc(size, i % 251));
      const body = new CollectedBody(rooms(1).all[0]!, MIB);
      for (const chunk of chunks) body.push(chunk);
      assert.ok(body.bytes().equals(Buffer.concat(chunks)));
    }
  });

  it('takes memory as it arrives, twice its bytes at most and never more than was announced', () => {
    const { all, used } = rooms(1);
    const body = new CollectedBody(all[0]!, 64 * MIB);
    assert.equal(used.bufferedBytes, 0);
    body.push(Buffer.alloc(100_000));
    assert.ok(used.bufferedBytes >= 100_000 && used.bufferedBytes <= 200_000, String(used.bufferedBytes));
    for (let mib = 1; mib < 63; mib++) body.push(Buffer.alloc(MIB));
    assert.equal(used.bufferedBytes, 64 * MIB);
  });
});

it('a body that is almost as large as the budget grows in a few steps, not with each chunk', () => {
  let [bytes, steps] = [0, 0];
  const used = {
    get bufferedBytes() {
      return bytes;
    },
    set bufferedBytes(next) {
      [bytes, steps] = [next, steps + 1];
    },
  };
  const body = new CollectedBody(rooms(1, used).all[0]!, 128 * MIB);
  const chunk = Buffer.alloc(MIB / 4);
  for (let k = 0; k < 4 * 79; k++) body.push(chunk);
  assert.ok(steps < 30, `${steps} steps`);
});

const inChunks = (body: string): Buffer =>
  post(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { headers: ['Transfer-Encoding: chunked'] });

const prompt = (bytes: number): string => chatBody({ user: 'x'.repeat(bytes) });

describe('uploads that share bounded memory', { concurrency: true }, () => {
  it('hold their memory until the response has begun, because a second attempt may need it', async (t) => {
    const { gateway, upstream, client } = await gatewayFixture(t);
    const freed = Promise.withResolvers<void>();
    const sent = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      await scripted.body();
      await sent.promise;
      await inTwoParts(freed.promise)(scripted);
    });
    const asking = client();
    const body = chatBody({ user: 'x'.repeat(50_000), stream: true });
    asking.send(post(body));
    await eventually('the request', () => upstream.requests[0]?.complete === true);
    assert.equal(gateway.counters.bufferedBytes, body.length);
    sent.resolve();
    await eventually('the memory to be free', () => gateway.counters.bufferedBytes === 0);
    assert.equal(gateway.active(), 1);
    freed.resolve();
    assert.equal((await answerTo(asking)).status, 200);
  });

  it('get 503 with Retry-After at once if there is no memory, and nothing is sent', async (t) => {
    const settings = { maxBufferedBytes: 8 * MIB, maxBodyBytes: 64 * MIB };
    const { upstream, gateway, sending, ask } = await gatewayFixture(t, { settings });
    const slow = sending(post('x'.repeat(6 * MIB), { headers: [`Content-Length: ${64 * MIB}`] }));
    await eventually('its bytes', () => gateway.counters.bufferedBytes >= 6 * MIB);
    for (const request of [post(prompt(2 * MIB)), inChunks(prompt(2 * MIB))]) {
      const answer = await ask(request);
      assertError(answer, 503, 'too_many_uploads');
      assert.match(answer.headers['retry-after'] ?? '', /^[2-5]$/);
    }
    assert.equal(upstream.requests.length, 0);
    slow.socket.destroy();
  });
});

/** A sealed answer of a little more than so many bytes. */
const answerOf = (request: Buffer, bytes: number): string => {
  const message = { role: 'assistant', content: 'x'.repeat(bytes / 2) };
  const choices = [{ index: 0, message, finish_reason: 'stop' }];
  return sealedAnswers(request).object({ ...COMPLETION, choices });
};

it('whole responses become 503 with Retry-After if others hold the memory; small ones and streams do not', async (t) => {
  const settings = { maxBufferedBytes: 2 * MIB };
  const { upstream, sending, ask, gateway } = await gatewayFixture(t, { settings });
  const large = (request: Buffer) => http(200, answerOf(request, 1.2 * MIB));
  upstream.answers((request) => large(request).slice(0, -10)); // its end never comes
  const holding = sending(post());
  await eventually('its answer', () => gateway.heldResponses.bufferedBytes > 1.2 * MIB);
  upstream.answers(large);
  const answer = await ask(post());
  assertError(answer, 503, 'too_many_responses');
  assert.match(answer.headers['retry-after'] ?? '', /^[2-5]$/);
  upstream.answers((request) => http(200, answerOf(request, 100)));
  assert.equal((await ask(post())).status, 200);
  upstream.answers(chatStream);
  assert.equal((await ask(post(chatBody({ stream: true })))).status, 200);
  holding.socket.destroy();
  await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
  upstream.answers(large);
  assert.equal((await ask(post())).status, 200);
});

it('events without an end share the memory: the stream that takes too much of it is broken off', async (t) => {
  const { upstream, sending, gateway } = await gatewayFixture(t, { settings: { maxBufferedBytes: 8 * MIB } });
  const lines = chunked('data:a\n'.repeat(16_384)).repeat(5); // 560 KiB
  upstream.answers(STREAM_HEAD + lines);
  const holding = sending(post(chatBody({ stream: true })));
  await eventually('its lines', () => gateway.heldResponses.bufferedBytes > 4 * MIB);
  const other = sending(post(chatBody({ stream: true })));
  await eventually('its end', () => other.received().includes('too_many_responses'));
  holding.socket.destroy();
  await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
});

it('memory for the parts of a request that its translated response repeats is reserved before it is sent, and freed when the client leaves', async (t) => {
  const asking = (bytes: number): Buffer =>
    post(JSON.stringify({ model: 'm', input: 'x', stream: true, metadata: { a: 'y'.repeat(bytes) } }), {
      path: '/v1/responses',
    });
  const { gateway, upstream, sending } = await gatewayFixture(t, {
    settings: { maxBufferedBytes: MIB },
    deps: { createTranslator },
  });
  upstream.on(async (scripted) => {
    await scripted.body();
    assert.ok(gateway.heldResponses.bufferedBytes > 600_000, String(gateway.heldResponses.bufferedBytes));
    await scripted.write(STREAM_HEAD);
  });
  const holding = sending(asking(200_000));
  await eventually('the head of its response', () => holding.received() !== '');
  assert.ok(gateway.heldResponses.bufferedBytes > 600_000);
  assertError(await answerTo(sending(asking(200_000))), 503, 'too_many_responses');
  assert.equal(upstream.requests.length, 1);
  holding.socket.destroy();
  await eventually('the memory to be free', () => gateway.heldResponses.bufferedBytes === 0);
});
