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
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const KIB = 1024;

/** A gateway with one place, where a client has half a second to take something. */
async function impatient(t: TestContext) {
  const queue = createFairQueue(1, systemClock);
  const gate = createRequestGate({ counts: undefined, queue });
  const fixture = await gatewayFixture(t, {
    deps: { gate },
    times: { readerWait: 500 },
  });
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
  const BLOCK = 'x'.repeat(256 * KIB);
  const whole =
    (blocks: number): Script =>
    async (scripted) => {
      const body = await scripted.body();
      const message = { role: 'assistant', content: BLOCK.repeat(blocks) };
      const chat = {
        ...{ id: 'c', object: 'chat.completion', created: 1, model: 'm' },
        choices: [{ index: 0, message, finish_reason: 'stop' }],
      };
      await scripted.write(
        http(200, sealedAnswers(body).object(chat), { 'Content-Type': 'application/json' }),
      );
    };
  const kinds: [what: string, request: string | Buffer, script: Script][] = [
    [
      'a complete stream',
      post(chatBody({ stream: true })),
      async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        const events = Array.from({ length: 40 }, () => sealed.chunk(BLOCK)).concat(
          sealed.chunk('', 'stop'),
          DONE,
        );
        await scripted.write(STREAM_HEAD + events.map(chunked).join('') + LAST_CHUNK);
      },
    ],
    ['a whole response', post(chatBody()), whole(40)],
  ];
  for (const [what, request, script] of kinds) {
    it(`is freed if the client reads nothing of ${what}, and the log says why`, async (t) => {
      const { upstream, gateway, client, queue, endings, ask } = await impatient(t);
      upstream.on(script);
      const asking = client();
      asking.socket.pause();
      asking.send(request);
      await eventually('its place', () => queue.size().running === 1);
      // Between two requests a line end begins none; it must not begin the client's time anew either.
      const blanks = setInterval(() => asking.socket.writable && asking.send('\r\n'), 100);
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
    const { upstream, client, endings, queue } = await impatient(t);
    upstream.on(whole(40));
    const asking = client();
    asking.socket.pause();
    asking.send(post());
    await eventually('its place', () => queue.size().running === 1);
    // As much as the system's buffers need to move, four times in the time that it has.
    let read = 0;
    asking.socket.on('data', (chunk: Buffer) => {
      read += chunk.length;
      if (read > 1_500_000) {
        read = 0;
        asking.socket.pause();
        setTimeout(() => asking.socket.resume(), 125);
      }
    });
    asking.socket.resume();
    const answer = await answerTo(asking, 30_000);
    assert.deepEqual([answer.status, answer.complete], [200, true]);
    await eventually('the line in the log', () => endings().length === 1);
    assert.equal(endings()[0].outcome, 'answered');
  });

  it('is kept while the service is silent', async (t) => {
    const { upstream, sending, queue } = await impatient(t);
    const { promise, resolve } = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hello')));
      await promise;
      await scripted.write(chunked(sealed.chunk('', 'stop')) + chunked(DONE) + LAST_CHUNK);
    });
    const asking = sending(post(chatBody({ stream: true })));
    await delay(1_200); // twice the time
    assert.equal(queue.size().running, 1);
    resolve();
    assert.equal((await answerTo(asking)).complete, true);
  });
});
