/**
 * The service dies after its response began: the error event arrives, and no client can take what it got for
 * complete.
 */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { createFakeClock } from '../support/remote/fake-clock.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import {
  chatStream,
  chunked,
  completion,
  DONE,
  http,
  LAST_CHUNK,
  plainError,
  STREAM_HEAD,
  sealedAnswers,
  tampered,
} from '../support/remote/sealed-answers.ts';

const STREAMING = chatBody({ stream: true });
/** Breaks when that client has the first event. */
const breaking =
  (asking: RawClient): Script =>
  async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    await asking.until(/"hel"/);
    scripted.reset();
  };

describe('broken streams', { concurrency: true }, () => {
  it('reach a reader that pauses for longer than the idle time-out with every event before the break, and with its error', async (t) => {
    const clock = createFakeClock();
    const { upstream, sending } = await gatewayFixture(t, { clock });
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (let i = 0; i < 150; i++) await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
      scripted.end();
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    await delay(500); // the remote fills what buffers there are, and waits
    await clock.advance(300_000);
    asking.socket.resume();
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    assert.equal(body.split('\n\n').filter((event) => event.includes('xxxxxxxx')).length, 150);
    assert.match(body, /"code":"stream_unfinished"[^\n]*\n\n$/);
  });

  it('end over HTTP/1.0 with the error and a reset of the connection', async (t) => {
    const { upstream, client } = await gatewayFixture(t);
    const asking = client();
    upstream.on(breaking(asking));
    asking.send(post(STREAMING, { version: '1.0' }));
    assert.equal(await asking.ended, 'ECONNRESET');
    assert.match(asking.received(), /"hel"[\s\S]*"code":"stream_unfinished"[^\n]*\n\n$/);
  });

  for (const version of ['1.0', '1.1'] as const) {
    it(`end on a socket file, which has no reset, with the error and a close: HTTP/${version}`, async (t) => {
      const path = join(temporaryDirectory('broken-streams-'), 'a.sock');
      const stack = await startStack({ flags: [`--listen-address=unix:${path}`] });
      t.after(() => stack.close());
      const socket = connect(path);
      const body = chatBody({ model: 'sim-echo+fault=reset_mid_event:4', stream: true });
      socket.write(post(body, { version }));
      assert.match(await text(socket), /"code":"stream_unfinished"[^\n]*\n\n(?:\r\n)?$/);
    });
  }

  it('over HTTP/1.0, a complete stream ends with an orderly close of the connection', async (t) => {
    const { sending } = await gatewayFixture(t, { answers: chatStream });
    const asking = sending(post(STREAMING, { version: '1.0' }));
    assert.equal(await asking.ended, 'end');
    const text = asking.received();
    assert.match(text, /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\nConnection: close\r\n/);
    assert.doesNotMatch(text, /Transfer-Encoding/i);
    assert.match(text, /"hel"[\s\S]*"lo"[\s\S]*data: \[DONE\]\n\n$/);
  });
});

describe('the end of a response', { concurrency: true }, () => {
  it('after a broken chunk in mid-stream is the error event stream_unfinished', async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t);
    const asking = client();
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
      await asking.until(/"hel"/);
      await scripted.write('zz\r\n');
    });
    asking.send(post(STREAMING));
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    assert.match(body, /^data: .*"content":"hel".*\n\ndata: \{"error":\{.*"code":"stream_unfinished".*\n\n$/);
    assert.equal(gateway.counters.truncatedStreams, 1);
    assert.equal(gateway.counters.clientAborts.size, 0, 'it was the proxy that broke off, not the client');
  });

  const PLAIN_ERROR = plainError(500, 'some words').slice(0, -10);
  const halfAnswer = (request: Buffer) => completion(request).slice(0, -30);
  const halfSealedError = (request: Buffer) =>
    http(400, sealedAnswers(request).object({ error: { message: 'some words' } })).slice(0, -10);
  for (const [name, half, isOver, status, code] of [
    ['a whole answer that breaks off', halfAnswer, true, 502, 'stream_unfinished'],
    ['a plain error that breaks off', () => PLAIN_ERROR, true, 502, 'stream_unfinished'],
    ['a plain error that stalls', () => PLAIN_ERROR, false, 504, 'stream_idle_timeout'],
    ['an encrypted error that breaks off', halfSealedError, true, 502, 'stream_unfinished'],
    ['an encrypted error that stalls', halfSealedError, false, 504, 'stream_idle_timeout'],
  ] as const) {
    it(`${name} becomes ${status} ${code}, and the client sees nothing of it`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { settings: { streamIdleTimeout: 200 } });
      upstream.on(async (scripted) => {
        await scripted.write(half(await scripted.body()));
        if (isOver) scripted.end();
      });
      const answer = await ask(post());
      assertError(answer, status, code);
      assert.ok(answer.complete && !answer.body.includes('some w'));
    });
  }

  for (const [prompt, isWhole] of [
    [['a', 'b'], true],
    [['a', 'b', 'c'], false],
  ] as const) {
    it(`a completions stream with two finished choices ${isWhole ? 'is whole' : 'breaks off'} for ${prompt.length} prompts`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      upstream.on(async (scripted) => {
        const sealed = sealedAnswers(await scripted.body());
        const head = { id: 'cmpl-1', object: 'text_completion', created: 1, model: 'm' };
        const events = [0, 1].map((index) =>
          sealed.event({ ...head, choices: [{ index, text: 'x', logprobs: null, finish_reason: 'stop' }] }),
        );
        await scripted.write(STREAM_HEAD + [...events, DONE].map(chunked).join('') + LAST_CHUNK);
      });
      const body = chatBody({ messages: undefined, stream: true, prompt });
      const answer = await ask(post(body, { path: '/v1/completions' }));
      assert.equal(answer.complete && answer.body.endsWith(DONE), isWhole);
      assert.equal(answer.body.includes('"code":"stream_unfinished"'), !isWhole);
    });
  }

  it('a list of models that breaks off is an error to the client', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      await scripted.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"dat\r\n');
      scripted.end();
    });
    const answer = await ask('GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n');
    assertError(answer, 502, 'stream_unfinished');
  });

  it('an upstream connection is closed when the gateway ends its stream as response_not_authentic', async (t) => {
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

  it('a stream is complete after its last event even if the service goes on writing', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { times: { upstreamLinger: 300 } });
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hello', 'stop')) + chunked(DONE));
      for (let open = true; open; ) {
        open = await Promise.race([scripted.closed.then(() => false), delay(100, true)]);
        scripted.write(chunked(': still here\n\n'));
      }
    });
    const answer = await ask(post(STREAMING)); // fails if the client waits for the rest, which never ends
    assert.ok(answer.complete && answer.body.endsWith(DONE));
    assert.ok(!answer.body.includes('still here'));
  });

  it('an upstream connection is reused if the last chunk comes a little after the last event', async (t) => {
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
