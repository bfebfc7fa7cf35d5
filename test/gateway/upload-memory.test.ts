/** Uploads that share bounded memory, through the whole gateway: who is refused, and until when. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
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
import { completion, inTwoParts } from '../support/remote/sealed-answers.ts';

const MIB = 1024 * 1024;

const chunked = (body: string): Buffer =>
  post(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`, { headers: ['Transfer-Encoding: chunked'] });

/** A prompt of that many bytes. */
const prompt = (bytes: number): string => chatBody({ user: 'x'.repeat(bytes) });

async function scene(t: Parameters<typeof gatewayFixture>[0], maxBufferedBytes: number): Promise<Fixture> {
  const fixture = await gatewayFixture(t, { settings: { maxBufferedBytes, maxBodyBytes: 64 * MIB } });
  fixture.upstream.answers(completion);
  return fixture;
}

/** A client that announces 64 MiB, of which so many bytes come. */
async function slowUpload({ sending, gateway }: Fixture, bytes: number): Promise<RawClient> {
  const before = gateway.counters.bufferedBytes;
  const asking = sending(post('x'.repeat(bytes), { headers: [`Content-Length: ${64 * MIB}`] }));
  await eventually('its bytes', () => gateway.counters.bufferedBytes >= before + bytes);
  return asking;
}

describe('uploads that share bounded memory', { concurrency: true, timeout: 600_000 }, () => {
  it('hold their memory until the response has begun, because a second attempt may need it', async (t) => {
    const { gateway, upstream, client } = await scene(t, MIB);
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

  it('cost nobody else a turn while they are slow: what is announced is not held', async (t) => {
    const fixture = await scene(t, 64 * MIB);
    const slow = [
      await slowUpload(fixture, MIB),
      await slowUpload(fixture, MIB),
      await slowUpload(fixture, MIB),
    ];
    const turns = Array.from({ length: 4 }, () => fixture.ask(post(prompt(2 * MIB))));
    for (const turn of await Promise.all(turns)) assert.equal(turn.status, 200);
    for (const { socket } of slow) socket.destroy();
  });

  it('get 503 with Retry-After at once if there is no memory, and nothing is sent', async (t) => {
    const fixture = await scene(t, 8 * MIB);
    const slow = await slowUpload(fixture, 6 * MIB);
    for (const request of [post(prompt(2 * MIB)), chunked(prompt(2 * MIB))]) {
      const answer = await fixture.ask(request);
      assertError(answer, 503, 'too_many_uploads');
      assert.match(answer.headers['retry-after'] ?? '', /^[2-5]$/);
    }
    assert.equal(fixture.upstream.requests.length, 0);
    slow.socket.destroy();
  });

  it('get 413 if they are larger than all of the memory, announced or not', async (t) => {
    const { ask } = await scene(t, 100_000);
    for (const request of [post(prompt(100_000)), chunked(prompt(100_000))]) {
      const answer = await ask(request);
      assertError(answer, 413, 'body_too_large');
      assert.match(answer.body, /--max-buffered-bytes/);
    }
  });

  it('leave nothing reserved when they are refused, or their client leaves while or after they are read', async (t) => {
    const fixture = await scene(t, MIB);
    const { gateway, sending, upstream, ask } = fixture;
    assert.equal((await ask(post('{"model":1}'))).status, 400);
    const growing = await slowUpload(fixture, 20_000);
    growing.socket.destroy();
    await eventually('the memory to be free', () => gateway.counters.bufferedBytes === 0);
    upstream.on(() => {});
    const answered = sending(post());
    await eventually('the request', () => upstream.requests[0]?.complete === true);
    answered.socket.destroy();
    await eventually('the memory to be free', () => gateway.counters.bufferedBytes === 0);
  });
});
