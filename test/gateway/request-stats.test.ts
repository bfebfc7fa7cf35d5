/** What the gateway counts and times of each request, for the metrics and the status page. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EPOCH, fakeSession } from '../support/doors/gateway.ts';
import { answerTo, CANARY, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import {
  chunked,
  completion,
  DONE,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const MB = 1024 * 1024;

describe('the time that the proxy adds to a request', { timeout: 600_000 }, () => {
  it('begins with the last byte of the upload, and includes the wait for a verified secret', async (t) => {
    const secret = Promise.withResolvers<typeof EPOCH>();
    const { gateway, sending } = await gatewayFixture(t, {
      answers: completion,
      session: fakeSession({ acquire: () => secret.promise }),
    });
    const client = sending(post());
    await eventually('the whole upload', () => gateway.logLines.some((line) => line.includes('"received"')));
    const verifiedAt = performance.now();
    secret.resolve(EPOCH);
    await answerTo(client);
    const { stats } = await eventually('an observation', () => gateway.observations[0]);
    const { uploadedAt = Number.NaN, sentAt = Number.NaN } = stats;
    assert.ok(uploadedAt <= verifiedAt && sentAt >= verifiedAt, `${uploadedAt}, ${verifiedAt}, ${sentAt}`);
  });

  it('ends when all of the encrypted request has left', async (t) => {
    const { gateway, upstream, sending } = await gatewayFixture(t, { settings: { maxBodyBytes: 64 * MB } });
    const stopped = Promise.withResolvers<() => void>();
    upstream.on(async (scripted) => {
      scripted.pause();
      stopped.resolve(scripted.resume);
      await scripted.write(completion(await scripted.body()));
    });
    const client = sending(post(chatBody({ messages: [{ role: 'user', content: CANARY.repeat(MB / 2) }] })));
    const resume = await stopped.promise;
    const resumedAt = performance.now();
    resume();
    await answerTo(client);
    const { stats } = await eventually('an observation', () => gateway.observations[0]);
    assert.ok((stats.sentAt ?? Number.NaN) >= resumedAt, `${stats.sentAt}, ${resumedAt}`);
  });
});

describe('the events of a stream', { timeout: 600_000 }, () => {
  it('count one by one, while it runs and afterwards, although they came in one piece', async (t) => {
    const { gateway, upstream, sending } = await gatewayFixture(t);
    const rest = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      const first = ['a', 'b', 'c'].map((text) => sealed.chunk(text)).join('');
      await scripted.write(STREAM_HEAD + chunked(first));
      await rest.promise;
      await scripted.write(chunked(sealed.chunk('d', 'stop') + DONE) + LAST_CHUNK);
    });
    const client = sending(post(chatBody({ stream: true })));
    await eventually('the first events', () => client.received().includes('"c"'));
    assert.equal(gateway.events(), 3);
    rest.resolve();
    await answerTo(client);
    const { stats } = await eventually('an observation', () => gateway.observations[0]);
    assert.deepEqual([stats.events, gateway.events()], [5, 0]);
  });

  it('are none of a whole response', async (t) => {
    const { gateway, ask } = await gatewayFixture(t, { answers: completion });
    await ask(post());
    const { stats } = await eventually('an observation', () => gateway.observations[0]);
    assert.equal(stats.events, 0);
  });
});
