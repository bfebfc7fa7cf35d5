/**
 * Clients that take nothing of their response: after a time the exchange ends, its place is free, and the log
 * says why.
 */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { systemClock } from '../../lib/clock.ts';
import { createFairQueue } from '../../lib/limits/fair-queue.ts';
import { createRequestGate } from '../../lib/limits/request-gate.ts';
import { answerTo, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { readAnswer } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Reply } from '../support/remote/scripted-upstream.ts';
import {
  COMPLETION,
  chunked,
  completion,
  DONE,
  http,
  inTwoParts,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

/** A gateway with one place, where a client has so many ms to take something. */
async function impatient(t: TestContext, readerWait: number) {
  const queue = createFairQueue(1, systemClock);
  const gate = createRequestGate({ counts: undefined, queue });
  const fixture = await gatewayFixture(t, { deps: { gate }, times: { readerWait } });
  const endings = () =>
    fixture.gateway.logLines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'Request ended');
  return { ...fixture, queue, endings };
}

const TOLD = {
  outcome: 'broken_off',
  code: 'response_not_read',
  reason: 'the client has taken nothing of its response for too long',
  level: 'INFO',
};

describe('the place of a client', { timeout: 600_000 }, () => {
  const BLOCK = 'x'.repeat(256 * 1024);
  const whole: Reply = (body) => {
    const choices = [
      { index: 0, message: { role: 'assistant', content: BLOCK.repeat(40) }, finish_reason: 'stop' },
    ];
    return http(200, sealedAnswers(body).object({ ...COMPLETION, choices }));
  };
  const streamed: Reply = (body) => {
    const sealed = sealedAnswers(body);
    const events = [...Array.from({ length: 40 }, () => sealed.chunk(BLOCK)), sealed.chunk('', 'stop'), DONE];
    return STREAM_HEAD + events.map(chunked).join('') + LAST_CHUNK;
  };
  for (const [what, stream, answer] of [
    ['a complete stream', true, streamed],
    ['a whole response', false, whole],
  ] as const) {
    it(`is freed if the client reads nothing of ${what}, and the log says why`, async (t) => {
      const { upstream, gateway, client, queue, endings, ask } = await impatient(t, 300);
      upstream.answers(answer);
      const asking = client();
      asking.socket.pause();
      asking.send(post(chatBody({ stream })));
      await eventually('its place', () => queue.size().running === 1);
      // Between two requests a line end begins none; it must not begin the client's time anew either.
      const blanks = setInterval(() => asking.socket.writable && asking.send('\r\n'), 50);
      t.after(() => clearInterval(blanks));
      await eventually('its place to be free', () => queue.size().running === 0);
      await eventually('its end', () => gateway.active() === 0);
      const [{ outcome, code, reason, level }] = endings();
      assert.deepEqual({ outcome, code, reason, level }, TOLD);
      await eventually('the end of its connection to the service', () => upstream.connections.open <= 1);
      asking.socket.resume();
      await asking.ended;
      assert.notEqual(readAnswer(asking.received())?.complete, true);
      upstream.answers(completion);
      assert.equal((await ask(post())).status, 200);
    });
  }

  it('is kept while the client slowly reads a whole response', async (t) => {
    const { upstream, client, endings } = await impatient(t, 1_000);
    upstream.answers(whole);
    const asking = client();
    // As much as the system's buffers need to move, eight times in the time that it has, and for longer.
    let read = 0;
    asking.socket.on('data', (chunk: Buffer) => {
      read += chunk.length;
      if (read < 1_000_000) return;
      read = 0;
      asking.socket.pause();
      setTimeout(() => asking.socket.resume(), 125);
    });
    const begun = performance.now();
    asking.send(post());
    const answer = await answerTo(asking);
    assert.ok(performance.now() - begun > 1_000, 'it read too fast to show anything');
    assert.deepEqual([answer.status, answer.complete], [200, true]);
    await eventually('the line in the log', () => endings().length === 1);
    assert.equal(endings()[0].outcome, 'answered');
  });

  it('is kept while the service is silent', async (t) => {
    const { upstream, sending, queue } = await impatient(t, 100);
    const { promise, resolve } = Promise.withResolvers<void>();
    upstream.on(inTwoParts(promise));
    const asking = sending(post(chatBody({ stream: true })));
    await asking.until(/"hel"/);
    await delay(250); // twice the time
    assert.equal(queue.size().running, 1);
    resolve();
    assert.equal((await answerTo(asking)).complete, true);
  });
});
