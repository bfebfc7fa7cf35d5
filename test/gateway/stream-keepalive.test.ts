/** --stream-keepalive: SSE comments while a stream is silent, and nothing else about it changes. */
import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import OpenAI from 'openai';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { all } from '../applications/ask.ts';
import { answerTo, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import type { Scripted } from '../support/remote/scripted-upstream.ts';
import { chunked, LAST_CHUNK, STREAM_HEAD, sealedAnswers } from '../support/remote/sealed-answers.ts';

const INTERVAL = 1_000;
const COMMENT = /d\r\n: keepalive\n\n\r\n/g; // in a chunk of its own
const DONE = chunked('data: [DONE]\n\n') + LAST_CHUNK;

/** A stream that is asked for, what the service can say in it, and a clock that the test advances. */
async function scene(t: TestContext, request = post(chatBody({ stream: true }))) {
  const clock = createFakeClock();
  const settings = { streamKeepalive: INTERVAL };
  const { upstream, sending } = await gatewayFixture(t, { clock, settings, deps: { createTranslator } });
  const { promise: asked, resolve: asks } = Promise.withResolvers<Scripted>();
  upstream.on(asks);
  const asking: RawClient = sending(request);
  const scripted = await asked;
  const sealed = sealedAnswers(await scripted.body());
  return {
    ...{ clock, asking, sealed, scripted },
    comments: () => asking.received().match(COMMENT)?.length ?? 0,
    say: (...parts: string[]) => scripted.write(parts.join('')),
    /** Sends the head, and waits until the client has it. */
    async begin() {
      await scripted.write(STREAM_HEAD);
      await asking.until(/\r\n\r\n$/);
    },
    /** What came but the comments, once the response is over. */
    body: async () => (await answerTo(asking)).body.replaceAll(': keepalive\n\n', ''),
  };
}

describe('--stream-keepalive', { concurrency: true, timeout: 600_000 }, () => {
  it('adds a comment after each interval of silence, before, between and after events, and none before the head', async (t) => {
    const { clock, asking, sealed, comments, say, begin, body } = await scene(t);
    await clock.advance(5 * INTERVAL);
    assert.equal(asking.received(), '', 'something came before the head');
    await begin();
    await clock.advance(INTERVAL);
    await eventually('a first comment', () => comments() === 1);
    for (const text of ['a', 'b', 'c']) {
      await say(chunked(sealed.chunk(text)));
      await asking.until(new RegExp(`"${text}"`));
      await clock.advance(INTERVAL - 100); // an event comes each time, so that it is never silent
    }
    assert.equal(comments(), 1);
    await clock.advance(100);
    await clock.advance(INTERVAL);
    await eventually('two more comments', () => comments() === 3);
    await say(chunked(sealed.chunk('d', 'stop')), DONE);
    assert.match(await body(), /^(?:data: .*\n\n){4}data: \[DONE\]\n\n$/);
    assert.equal(clock.timers().all, 0, 'a timer goes on after the end');
  });

  it('does not put a comment into an event of which only half has arrived', async (t) => {
    const { clock, asking, sealed, comments, say, body } = await scene(t);
    const event = sealed.chunk('hello', 'stop');
    await say(STREAM_HEAD, chunked(event.slice(0, 40)));
    await asking.until(/\r\n\r\n$/);
    await clock.advance(INTERVAL);
    await eventually('a comment', () => comments() === 1);
    await say(chunked(event.slice(40)), DONE);
    assert.match(await body(), /^data: [^\n]*"hello"[^\n]*\n\ndata: \[DONE\]\n\n$/);
  });

  it('adds no comment after the error of a broken stream', async (t) => {
    const { clock, asking, begin, scripted } = await scene(t);
    await begin();
    await clock.advance(INTERVAL);
    scripted.reset();
    await clock.advance(INTERVAL);
    const { body, complete } = await answerTo(asking);
    assert.equal(complete, false);
    assert.match(body, /"code":"stream_unfinished"[^\n]*\n\n$/);
  });

  it('does not keep the idle time-out from ending a stream of a service that stalls', async (t) => {
    const { clock, asking, begin } = await scene(t);
    await begin();
    for (let i = 0; i < 60; i++) await clock.advance(INTERVAL);
    const { body } = await answerTo(asking);
    assert.match(body, /^(?:: keepalive\n\n)+data: \{"error".*"code":"stream_idle_timeout"/);
  });

  it('adds events that mean nothing to a stream of the Responses API, and the official clients skip them', async (t) => {
    const request = JSON.stringify({ model: 'm', input: 'hi', stream: true });
    const { clock, asking, sealed, say, begin } = await scene(t, post(request, { path: '/v1/responses' }));
    await begin();
    await clock.advance(INTERVAL);
    await asking.until(/event: response\.created\n.*\n\nevent: response\.in_progress\n.*\n\n/);
    await clock.advance(INTERVAL);
    await asking.until(/event: keepalive\ndata: \{"type":"keepalive","sequence_number":2\}\n\n/);
    await say(chunked(sealed.chunk('a')));
    await asking.until(/"delta":"a"/);
    await clock.advance(INTERVAL);
    await asking.until(/event: keepalive\ndata: \{"type":"keepalive","sequence_number":6\}\n\n/);
    await say(chunked(sealed.chunk('b', 'stop')), DONE);
    const { body } = await answerTo(asking);
    const headers = { 'content-type': 'text/event-stream' };
    const client = new OpenAI({ apiKey: 'k', fetch: async () => new Response(body, { headers }) });
    const final = await client.responses.stream({ model: 'm', input: 'hi' }).finalResponse();
    assert.deepEqual([final.status, final.output_text, final.model], ['completed', 'ab', 'm']);
    const events = await all(await client.responses.create({ model: 'm', input: 'hi', stream: true }));
    assert.deepEqual(
      events.map(({ sequence_number: number }) => number),
      [...body.matchAll(/^data: /gm)].map((_, at) => at),
    );
  });
});
