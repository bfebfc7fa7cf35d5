/**
 * The service dies after its response began: the error event arrives, and no client can take what it got for
 * complete.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import {
  beginning,
  chunked,
  completion,
  http,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });
const ERROR_AT_END = /"code":"stream_unfinished"[^\n]*\n\n$/;

describe('broken streams', { concurrency: true }, () => {
  it('reach a reader that pauses for longer than the idle time-out with every event before the break, and hold the service back meanwhile', async (t) => {
    const EVENTS = 300;
    const clock = createFakeClock();
    const { upstream, sending } = await gatewayFixture(t, { clock });
    let [written, last] = [0, performance.now()];
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (; written < EVENTS; written++) {
        await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
        last = performance.now();
      }
      scripted.end();
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    await eventually('full buffers', () => performance.now() - last > 200);
    assert.ok(written < EVENTS, 'nothing held the service back');
    await clock.advance(300_000);
    asking.socket.resume();
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    assert.equal(body.split('\n\n').filter((event) => event.includes('xxxxxxxx')).length, EVENTS);
    assert.match(body, ERROR_AT_END);
  });

  it('end over HTTP/1.0 with the error and a reset of the connection', async (t) => {
    const { upstream, client } = await gatewayFixture(t);
    const asking = client();
    upstream.on(async (scripted) => {
      await scripted.write(beginning(await scripted.body()));
      await asking.until(/"hel"/);
      scripted.reset();
    });
    asking.send(post(STREAMING, { version: '1.0' }));
    assert.equal(await asking.ended, 'ECONNRESET');
    assert.match(asking.received(), /"hel"/);
    assert.match(asking.received(), ERROR_AT_END);
  });
});

describe('the end of a response', { concurrency: true }, () => {
  it('of a whole one that breaks off or stalls is an error, and the client sees nothing of what came', async (t) => {
    const plain = () => plainError(500, 'some words').slice(0, -10);
    const sealed = (request: Buffer) =>
      http(400, sealedAnswers(request).object({ error: { message: 'some words' } })).slice(0, -10);
    for (const half of [(request: Buffer) => completion(request).slice(0, -30), plain, sealed]) {
      for (const isOver of [true, false]) {
        const { upstream, ask } = await gatewayFixture(t, { settings: { streamIdleTimeout: 100 } });
        upstream.on(async (scripted) => {
          await scripted.write(half(await scripted.body()));
          if (isOver) scripted.end();
        });
        const answer = await ask(post());
        if (isOver) assertError(answer, 502, 'stream_unfinished');
        else assertError(answer, 504, 'stream_idle_timeout');
        assert.ok(answer.complete && !answer.body.includes('some w'));
      }
    }
  });
});
