/** Uploads that share bounded memory, through the whole gateway: who is refused, and until when. */
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
      const sealed = sealedAnswers(await scripted.body());
      await sent.promise;
      await scripted.write(STREAM_HEAD + chunkOf(sealed.chunk('hel')));
      await freed.promise;
      await scripted.write(chunkOf(sealed.chunk('lo', 'stop')) + chunkOf(DONE) + LAST_CHUNK);
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
