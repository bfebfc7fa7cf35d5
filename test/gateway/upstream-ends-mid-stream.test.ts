/** The service dies after its response began: the client must never take what it got for a complete response. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { answerTo, chatBody, codeOf, gatewayFixture, post } from '../support/gateway-fixture.ts';
import type { Scripted } from '../support/scripted-upstream.ts';
import {
  chunked,
  completion,
  DONE,
  LAST_CHUNK,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../support/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });

describe('the service dies in mid-stream', { concurrency: true }, () => {
  const deaths: [name: string, die: (scripted: Scripted) => unknown][] = [
    ['a reset', (scripted) => scripted.reset()],
    ['a close', (scripted) => scripted.end()],
    ['a broken chunk', (scripted) => scripted.write('zz\r\n')],
    ['a last chunk without the last event', (scripted) => scripted.write(LAST_CHUNK)],
  ];
  for (const [name, die] of deaths) {
    it(`${name} becomes an error event and no clean end`, async (t) => {
      const { upstream, gateway, client } = await gatewayFixture(t);
      const asking = client();
      upstream.on(async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
        await asking.until(/"hel"/);
        await die(scripted);
      });
      asking.send(post(STREAMING));
      const answer = await answerTo(asking);
      assert.equal(answer.status, 200);
      assert.equal(answer.complete, false);
      const events = answer.body.split('\n\n');
      assert.match(events[0] ?? '', /"content":"hel"/);
      assert.match(events[1] ?? '', /^data: \{"error":\{.*"code":"stream_unfinished"/);
      assert.doesNotMatch(answer.body, /\[DONE\]/);
      assert.equal(gateway.counters.truncatedStreams, 1);
    });
  }

  it('a whole answer that breaks off is an error, and nothing of it is shown', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const whole = completion(await scripted.body());
      await scripted.write(whole.slice(0, -30));
      scripted.end();
    });
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer), answer.complete], [502, 'stream_unfinished', true]);
  });

  it('an answer of a list of models that breaks off does not look complete', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      await scripted.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"dat\r\n');
      scripted.end();
    });
    const answer = await ask('GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n');
    assert.deepEqual([answer.status, answer.body, answer.complete], [200, '{"dat', false]);
  });

  it('a plain error that breaks off is told as such', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      await scripted.body();
      await scripted.write(plainError(500, 'some words').slice(0, -10));
      scripted.end();
    });
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [502, 'stream_unfinished']);
  });

  it('a plain error that stalls is given up', async (t) => {
    const { ask } = await gatewayFixture(t, {
      answers: plainError(500, 'some words').slice(0, -10),
      streamIdleTimeout: 200,
    });
    const answer = await ask(post());
    assert.deepEqual([answer.status, codeOf(answer)], [504, 'stream_idle_timeout']);
  });

  it('an answer that we end ourselves takes its connection with it', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const closed = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      void scripted.closed.then(closed.resolve);
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(tampered(sealed.chunk('hel'))));
    });
    const answer = await ask(post(STREAMING));
    assert.match(answer.body, /"code":"response_not_authentic"/);
    await closed.promise;
  });

  it('an answer that goes on after its last event is complete at once', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hello', 'stop')) + chunked(DONE));
      for (let open = true; open; ) {
        open = await Promise.race([scripted.closed.then(() => false), delay(100, true)]);
        scripted.write(chunked(': still here\n\n'));
      }
    });
    const begun = performance.now();
    const answer = await ask(post(STREAMING));
    assert.ok(answer.complete && answer.body.endsWith(DONE));
    assert.ok(!answer.body.includes('still here'));
    assert.ok(performance.now() - begun < 2_000, 'the client waited for the rest');
  });

  it('a last chunk that comes a little after the last event leaves the connection for the next request', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hello', 'stop')) + chunked(DONE));
      await delay(30);
      await scripted.write(LAST_CHUNK);
    });
    assert.ok((await ask(post(STREAMING))).complete);
    await delay(60); // until that has been read, which nothing tells
    assert.ok((await ask(post(STREAMING))).complete);
    assert.equal(upstream.connections.total, 1);
  });
});
