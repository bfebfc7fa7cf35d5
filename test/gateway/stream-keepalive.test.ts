/** --stream-keepalive: SSE comments while a stream is silent, and nothing else about it changes. */
import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import OpenAI from 'openai';
import { keepStreamAlive } from '../../lib/gateway/stream-keepalive.ts';
import { answerTo, chatBody, type Fixture, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import {
  chunked,
  completion,
  LAST_CHUNK,
  STREAM_HEAD,
  sealedAnswers,
} from '../support/remote/sealed-answers.ts';

const INTERVAL = 20;
const ON = { settings: { streamKeepalive: INTERVAL } };
const STREAMING = post(chatBody({ stream: true }));
const COMMENT = ': keepalive\n\n';
const COMMENTS = /(?:d\r\n: keepalive\n\n\r\n){2}/; // each in a chunk of its own
const DONE = chunked('data: [DONE]\n\n') + LAST_CHUNK;

/** What a script writes next, when the test says so. */
function steps(
  upstream: Fixture['upstream'],
): (text: (sealed: ReturnType<typeof sealedAnswers>) => string) => void {
  const { promise, resolve } = Promise.withResolvers<(text: string) => void>();
  const { promise: sealed, resolve: sealing } = Promise.withResolvers<ReturnType<typeof sealedAnswers>>();
  upstream.on(async (scripted) => {
    sealing(sealedAnswers(await scripted.body()));
    resolve((text) => void scripted.write(text));
  });
  let last = Promise.resolve();
  return (text) => {
    last = last.then(async () => (await promise)(text(await sealed)));
  };
}

describe('--stream-keepalive', { concurrency: true, timeout: 600_000 }, () => {
  it('adds comments to a silent stream before the first event and between events, and none after its end', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, ON);
    const write = steps(upstream);
    const asking = sending(STREAMING);
    write(() => STREAM_HEAD);
    assert.match(await asking.until(COMMENTS), /^HTTP\/1\.1 200 /);
    write((sealed) => chunked(sealed.chunk('hel')));
    await asking.until(/"hel"/);
    await asking.until(new RegExp(`"hel"[^]*${COMMENTS.source}`));
    write((sealed) => chunked(sealed.chunk('lo', 'stop')) + DONE);
    const { body } = await answerTo(asking);
    assert.match(body, /"lo"[^\n]*\n\ndata: \[DONE\]\n\n$/);
    const events = body.replaceAll(COMMENT, '').split('\n\n');
    assert.equal(events.length, 4, body); // two chunks, [DONE], and the end
    const length = asking.received().length;
    await delay(4 * INTERVAL);
    assert.equal(asking.received().length, length, 'something came after the end');
  });

  it('sends nothing before the head of the response', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, ON);
    const write = steps(upstream);
    const asking = sending(STREAMING);
    await eventually('the request at the service', () => upstream.requests.length === 1);
    await delay(4 * INTERVAL);
    assert.equal(asking.received(), '');
    write((sealed) => STREAM_HEAD + chunked(sealed.chunk('hello', 'stop')) + DONE);
    assert.equal((await answerTo(asking)).status, 200);
  });

  for (const retry of ['retry: 1000\n', ': note\n\nretry: 1000\n\n', 'id: 7\nretry: 1000\n']) {
    it(`adds comments after a \`retry\` line, before the next event: ${JSON.stringify(retry)}`, async (t) => {
      const { upstream, sending } = await gatewayFixture(t, ON);
      const write = steps(upstream);
      const asking = sending(STREAMING);
      write(() => STREAM_HEAD + chunked(retry));
      await asking.until(new RegExp(`retry: 1000\n\r\n${COMMENTS.source}`));
      write((sealed) => chunked(sealed.chunk('hello', 'stop')) + DONE);
      const { body } = await answerTo(asking);
      assert.match(body.replaceAll(COMMENT, ''), /(?:^|\n\n)retry: 1000\n(?:id: 7\n)?data: [^\n]*"hello"/);
    });
  }

  it('does not put a comment into an event of which only half has arrived', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, ON);
    const write = steps(upstream);
    const asking = sending(STREAMING);
    let rest = '';
    write((sealed) => {
      const event = sealed.chunk('hello', 'stop');
      rest = event.slice(40);
      return STREAM_HEAD + chunked(event.slice(0, 40));
    });
    await asking.until(COMMENTS);
    write(() => chunked(rest) + DONE);
    const { body } = await answerTo(asking);
    assert.match(body.replaceAll(COMMENT, ''), /^data: [^\n]*"hello"[^\n]*\n\ndata: \[DONE\]\n\n$/);
  });

  it('adds no comment after the error at the end of a broken stream', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, ON);
    upstream.on(async (scripted) => {
      await scripted.body();
      await scripted.write(STREAM_HEAD);
      await delay(3 * INTERVAL);
      scripted.reset();
    });
    const asking = sending(STREAMING);
    const { body, complete } = await answerTo(asking);
    assert.equal(complete, false);
    assert.match(body, /"code":"stream_unfinished"[^\n]*\n\n$/);
  });

  it('does not keep the idle time-out from ending a stream of a service that stalls', async (t) => {
    const { ask } = await gatewayFixture(t, {
      answers: STREAM_HEAD,
      settings: { ...ON.settings, streamIdleTimeout: 500 },
    });
    const { body } = await ask(STREAMING);
    assert.match(body, /^(?:: keepalive\n\n)+data: \{"error".*"code":"stream_idle_timeout"/);
  });

  it('adds no comments to a whole response', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, ON);
    upstream.on(async (scripted) => {
      const answer = completion(await scripted.body());
      await scripted.write(answer.slice(0, -20));
      await delay(4 * INTERVAL);
      await scripted.write(answer.slice(-20));
    });
    const { status, body } = await ask(post());
    assert.equal(status, 200);
    assert.doesNotMatch(body, /keepalive/);
  });

  it('is off by default', async (t) => {
    const { upstream, sending } = await gatewayFixture(t);
    const write = steps(upstream);
    const asking = sending(STREAMING);
    write(() => STREAM_HEAD);
    await asking.until(/\r\n\r\n/);
    await delay(4 * INTERVAL);
    write((sealed) => chunked(sealed.chunk('hello', 'stop')) + DONE);
    assert.doesNotMatch((await answerTo(asking)).body, /^:/m);
  });

  it('adds comments that the OpenAI SDK skips', async (t) => {
    const { upstream, gateway } = await gatewayFixture(t, ON);
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD);
      await delay(3 * INTERVAL);
      await scripted.write(chunked(sealed.chunk('hel')));
      await delay(3 * INTERVAL);
      await scripted.write(chunked(sealed.chunk('lo', 'stop')) + DONE);
    });
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'k', maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'x' }];
    let said = '';
    for await (const { choices } of await client.chat.completions.create({
      model: 'm',
      stream: true,
      messages,
    }))
      said += choices[0]?.delta.content ?? '';
    assert.equal(said, 'hello');
  });
});

describe('a keepalive comment', () => {
  /** A stream of its own clock: comments after 1000 ms of silence. */
  function scene(t: TestContext) {
    const clock = createFakeClock();
    const written: string[] = [];
    const res = { writableNeedDrain: false, write: (text: string) => written.push(text) };
    const events = new EventEmitter();
    keepStreamAlive(events as unknown as Readable, res as unknown as ServerResponse, {
      interval: 1000,
      clock,
    });
    t.after(() => events.emit('close'));
    const pass = async (ms: number): Promise<number> => {
      await clock.advance(ms);
      return written.splice(0).length;
    };
    return { events, res, pass };
  }
  const EVENT = Buffer.from('data: x\n\n');

  it('is written after each interval of silence', async (t) => {
    const { pass } = scene(t);
    assert.deepEqual(
      [await pass(900), await pass(100), await pass(900), await pass(100), await pass(3000)],
      [0, 1, 0, 1, 3],
    );
  });

  it('is not written while events come, but one interval after the last event', async (t) => {
    const { events, pass } = scene(t);
    for (let i = 0; i < 20; i++) {
      events.emit('data', EVENT);
      assert.equal(await pass(900), 0);
    }
    assert.equal(await pass(100), 1);
  });

  it('is not written while the client does not keep up with reading', async (t) => {
    const { res, pass } = scene(t);
    res.writableNeedDrain = true;
    assert.equal(await pass(5000), 0);
    res.writableNeedDrain = false;
    assert.equal(await pass(1000), 1);
  });

  for (const part of ['event: message_start\n', 'data: {"text":"\\nretry: 1', 'x\n\nevent: retry: 1\n']) {
    it(`is not written within an event: ${JSON.stringify(part)}`, async (t) => {
      const { events, pass } = scene(t);
      events.emit('data', Buffer.from(part));
      assert.equal(await pass(5000), 0);
      events.emit('data', EVENT);
      assert.equal(await pass(1000), 1);
    });
  }

  it('is not written after the end of the stream', async (t) => {
    const { events, pass } = scene(t);
    events.emit('end');
    assert.equal(await pass(5000), 0);
  });
});
