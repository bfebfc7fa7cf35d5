/**
 * Uploads that share bounded memory, through the whole gateway: who waits, who is refused, and when it is
 * free again.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  answerTo,
  assertError,
  chatBody,
  type Fixture,
  gatewayFixture,
  post,
} from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Scripted } from '../support/remote/scripted-upstream.ts';
import {
  chunked as chunkOf,
  completion,
  DONE,
  LAST_CHUNK,
  openedRequest,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const BUDGET = 100_000;
/** A client whose body is announced with that length, and does not come. */
async function announced({ client, gateway }: Fixture, length: number): Promise<RawClient> {
  const asking = client();
  const before = gateway.active();
  asking.send(post('{', { headers: [`Content-Length: ${length}`] }));
  await eventually('the request', () => gateway.active() === before + 1);
  return asking;
}

const scene = async (t: Parameters<typeof gatewayFixture>[0], memoryWait = 20_000): Promise<Fixture> => {
  const fixture = await gatewayFixture(t, {
    settings: { maxBufferedBytes: BUDGET },
    times: { memoryWait },
  });
  fixture.upstream.answers(completion);
  return fixture;
};

const chunked = (body: string): Buffer =>
  post(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { headers: ['Transfer-Encoding: chunked'] });

describe('uploads that share bounded memory', { concurrency: true, timeout: 600_000 }, () => {
  it('reserve their announced length, and free it once the response has begun', async (t) => {
    const { gateway, upstream, client } = await scene(t);
    const sent = Promise.withResolvers<void>();
    const freed = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const body = await scripted.body();
      await sent.promise;
      const sealed = sealedAnswers(body);
      await scripted.write(STREAM_HEAD + chunkOf(sealed.chunk('hel')));
      await freed.promise;
      await scripted.write(chunkOf(sealed.chunk('lo', 'stop')) + chunkOf(DONE) + LAST_CHUNK);
    });
    const asking = client();
    const body = chatBody({ user: 'x'.repeat(50_000), stream: true });
    const request = post(body);
    asking.send(request.subarray(0, -10));
    await eventually('the reservation', () => gateway.counters.bufferedBytes === body.length);
    asking.send(request.subarray(-10));
    await eventually('the request', () => upstream.requests[0]?.complete === true);
    assert.equal(gateway.counters.bufferedBytes, body.length, 'a second attempt may need it');
    sent.resolve();
    await eventually(
      'the memory to be free while the answer comes',
      () => gateway.counters.bufferedBytes === 0,
    );
    assert.equal(gateway.active(), 1);
    freed.resolve();
    assert.equal((await answerTo(asking)).status, 200);
  });

  it('wait unread for each other if there is not enough memory', async (t) => {
    const fixture = await scene(t);
    const { gateway, client, upstream } = fixture;
    const holding = await announced(fixture, 90_000);
    const waiting = client();
    const body = chatBody({ user: 'x'.repeat(50_000) });
    waiting.send(post(body));
    await eventually('the request', () => gateway.active() === 2);
    assert.equal(gateway.counters.bufferedBytes, 90_000);
    assert.equal(upstream.requests.length, 0);
    holding.socket.destroy();
    assert.equal((await answerTo(waiting)).status, 200);
  });

  it('get 503 with Retry-After after too long a wait, and nothing is sent', async (t) => {
    const fixture = await scene(t, 100);
    const { sending } = fixture;
    await announced(fixture, 90_000);
    const waiting = sending(post(chatBody({ user: 'x'.repeat(50_000) })));
    const answer = await answerTo(waiting);
    assertError(answer, 503, 'too_many_uploads');
    assert.match(answer.headers['retry-after'] ?? '', /^[1-9]$/);
    assert.equal(fixture.upstream.connections.total, 0);
  });

  it('get 503 without a wait if their length is unknown and there is not enough memory', async (t) => {
    const fixture = await scene(t);
    const { sending } = fixture;
    await announced(fixture, 90_000);
    const asking = sending(chunked(chatBody({ user: 'x'.repeat(50_000) })));
    const answer = await answerTo(asking);
    assertError(answer, 503, 'too_many_uploads');
    assert.match(answer.headers['retry-after'] ?? '', /^[1-9]$/);
  });

  it('get 413 if they are larger than all of the memory, announced or not', async (t) => {
    const { ask } = await scene(t);
    const body = chatBody({ user: 'x'.repeat(BUDGET) });
    for (const request of [post(body), chunked(body)]) {
      const answer = await ask(request);
      assertError(answer, 413, 'body_too_large');
      assert.match(answer.body, /--max-buffered-bytes/);
    }
  });

  it('leave nothing reserved when their client leaves before, while or after they are read', async (t) => {
    const fixture = await scene(t);
    const { gateway, sending, upstream } = fixture;
    const holding = await announced(fixture, 90_000);
    const waiting = await announced(fixture, 50_000);
    waiting.socket.destroy();
    await eventually('the end of the request that waits', () => gateway.active() === 1);
    const growing = sending(post('5\r\n{"mod\r\n', { headers: ['Transfer-Encoding: chunked'] }));
    await eventually('the chunk to be counted', () => gateway.counters.bufferedBytes === 90_005);
    for (const { socket } of [holding, growing]) socket.destroy();
    await eventually('the memory to be free', () => gateway.counters.bufferedBytes === 0);
    upstream.on(() => {});
    const answered = sending(post());
    await eventually('the request', () => upstream.requests[0]?.complete === true);
    answered.socket.destroy();
    await eventually('the memory to be free', () => gateway.counters.bufferedBytes === 0);
  });

  it('leave nothing reserved when they are refused', async (t) => {
    const { gateway, ask } = await scene(t);
    assert.equal((await ask(post('{"model":1}'))).status, 400);
    await eventually('the memory to be free', () => gateway.counters.bufferedBytes === 0);
  });
});

const UPLOADS = 36;
const LANES = 9;
/** Beyond one slice of 512 KiB, so that there are some to take turns; no two of the same length. */
const promptOf = (number: number): string => `<${number}>`.repeat(200_000 + 30_000 * (number % 12));

/** Every third client leaves: before the end of its prompt, or while the remote is slow to take it. */
const leaves = (number: number): boolean => number % 3 === 2;

/** Takes the request in with pauses, so that slices wait, and answers what it could open. */
async function answerSlowly(scripted: Scripted, arrived: Map<string, string>): Promise<void> {
  for (let i = 0; i < 3; i++) {
    scripted.pause();
    await delay(4);
    scripted.resume();
    await delay(1);
  }
  const body = await scripted.body();
  const [{ content }] = JSON.parse(openedRequest(body).get('messages')!) as [{ content: string }];
  arrived.set(content.slice(0, content.indexOf('>') + 1), content);
  await scripted.write(completion(body));
}

describe('large prompts at the same time', () => {
  it('each arrive unchanged while clients of other prompts leave', { timeout: 600_000 }, async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t, { settings: { maxBodyBytes: 10_000_000 } });
    const arrived = new Map<string, string>();
    // cut off, by a client that left
    upstream.on((scripted) => answerSlowly(scripted, arrived).catch(() => {}));
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < UPLOADS) {
        const number = next++;
        const asking = client();
        const request = post(chatBody({ messages: [{ role: 'user', content: promptOf(number) }] }));
        if (!leaves(number)) {
          asking.send(request);
          assert.equal((await answerTo(asking)).status, 200, `upload ${number}`);
          continue;
        }
        asking.send(number % 2 === 0 ? request : request.subarray(0, request.length / 2));
        await delay(2 + (number % 7));
        asking.socket.destroy();
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    await eventually('the end of all exchanges', () => gateway.active() === 0);
    for (let number = 0; number < UPLOADS; number++) {
      const name = `<${number}>`;
      if (!leaves(number) || arrived.has(name)) {
        assert.ok(arrived.get(name) === promptOf(number), `prompt ${number} arrived as something else`);
      }
    }
  });
});
