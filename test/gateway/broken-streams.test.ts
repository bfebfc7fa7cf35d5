/**
 * The service dies after its response began: the error event arrives, and no client can take what it got for
 * complete.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import type { RawClient } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import type { Script, Scripted } from '../support/remote/scripted-upstream.ts';
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
const MESSAGES = chatBody({ stream: true, max_tokens: 5 });
/** Breaks when that client has the first event. */
const breaking =
  (asking: RawClient): Script =>
  async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    await scripted.write(STREAM_HEAD + chunked(sealed.chunk('hel')));
    await asking.until(/"hel"/);
    scripted.reset();
  };

/** Sends `count` events of 64 KiB and then dies. */
const flooding =
  (count: number): Script =>
  async (scripted) => {
    const sealed = sealedAnswers(await scripted.body());
    scripted.write(STREAM_HEAD);
    for (let i = 0; i < count; i++) await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
    scripted.end();
  };

describe('broken streams', { concurrency: true }, () => {
  it('end in the OpenAI style with the error as last event, and without a last chunk', async (t) => {
    const { upstream, gateway, client } = await gatewayFixture(t);
    const asking = client();
    upstream.on(breaking(asking));
    asking.send(post(STREAMING));
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    await eventually('the end of the exchange', () => gateway.active() === 0);
    assert.equal(gateway.counters.clientAborts.size, 0, 'it was the proxy that broke off, not the client');
    assert.match(body, /\n\ndata: \{"error":\{"message":"[^"]+","type":"server_error".*\}\}\n\n$/);
  });

  it('end in the Anthropic style with the error as last event, and without a last chunk', async (t) => {
    const { upstream, client } = await gatewayFixture(t);
    const asking = client();
    upstream.on(async (scripted) => {
      await scripted.body();
      await scripted.write(STREAM_HEAD + chunked('event: ping\ndata: {"type":"ping"}\n\n'));
      await asking.until(/"ping"/);
      scripted.reset();
    });
    asking.send(post(MESSAGES, { path: '/v1/messages' }));
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    assert.match(body, /\n\nevent: error\ndata: \{"type":"error","error":\{"type":"api_error".*\}\}?\n\n$/);
  });

  it('reach a slow reader with every event before the break, and with the error', async (t) => {
    const { upstream, sending } = await gatewayFixture(t);
    upstream.on(flooding(100));
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    await delay(500); // the remote fills what buffers there are, and dies or waits: nothing tells which
    asking.socket.resume();
    const { complete, body } = await answerTo(asking);
    assert.equal(complete, false);
    const events = body.split('\n\n').filter((event) => event.includes('xxxxxxxx'));
    assert.equal(events.length, 100);
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

  it('over HTTP/1.0, a complete stream ends with an orderly close of the connection', async (t) => {
    const { sending } = await gatewayFixture(t, { answers: chatStream });
    const asking = sending(post(STREAMING, { version: '1.0' }));
    assert.equal(await asking.ended, 'end');
    const text = asking.received();
    assert.match(text, /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\nConnection: close\r\n/);
    assert.doesNotMatch(text, /Transfer-Encoding/i);
    assert.match(text, /"hel"[\s\S]*"lo"[\s\S]*data: \[DONE\]\n\n$/);
  });

  it('over HTTP/1.0, a response without a stream is complete', async (t) => {
    const { ask } = await gatewayFixture(t, { answers: completion });
    const answer = await ask(post(chatBody(), { version: '1.0' }));
    assert.deepEqual([answer.status, answer.complete], [200, true]);
    assert.match(answer.body, /"hello"/);
  });
});

describe('a reader that pauses for longer than the idle time-out', { concurrency: true }, () => {
  it('gets its whole stream, and the service does not count as stalled', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { settings: { streamIdleTimeout: 300 } });
    upstream.on(async (scripted) => {
      const sealed = sealedAnswers(await scripted.body());
      scripted.write(STREAM_HEAD);
      for (let i = 0; i < 150; i++) await scripted.write(chunked(sealed.chunk('x'.repeat(65_536))));
      await scripted.write(`${chunked(sealed.chunk('end', 'stop'))}e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n`);
    });
    const asking = sending(post(STREAMING));
    await asking.until(/\r\n\r\n/);
    asking.socket.pause();
    await delay(1_200); // four times the idle time-out
    asking.socket.resume();
    const { complete, body } = await answerTo(asking);
    assert.ok(complete && body.endsWith('data: [DONE]\n\n'), body.slice(-300));
  });
});

describe('the end of a response', { concurrency: true }, () => {
  const deaths: [name: string, die: (scripted: Scripted) => unknown][] = [
    ['a reset', (scripted) => scripted.reset()],
    ['a close', (scripted) => scripted.end()],
    ['a broken chunk', (scripted) => scripted.write('zz\r\n')],
    ['a last chunk without the last event', (scripted) => scripted.write(LAST_CHUNK)],
  ];
  for (const [name, die] of deaths) {
    it(`${name} in mid-stream gives the error event stream_unfinished, and an incomplete response`, async (t) => {
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

  const PLAIN_ERROR = plainError(500, 'some words').slice(0, -10);
  const halfSealedError = (request: Buffer) =>
    http(400, sealedAnswers(request).object({ error: { message: 'some words' } })).slice(0, -10);
  for (const [name, half, isOver, status, code] of [
    [
      'a whole answer that breaks off',
      (request: Buffer) => completion(request).slice(0, -30),
      true,
      502,
      'stream_unfinished',
    ],
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

  it('a list of models that breaks off does not look complete to the client', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(async (scripted) => {
      await scripted.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"dat\r\n');
      scripted.end();
    });
    const answer = await ask('GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n');
    assert.deepEqual([answer.status, answer.body, answer.complete], [200, '{"dat', false]);
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

it('an upstream response that is no HTTP becomes 502 response_malformed, and no failure to decrypt is counted', async (t) => {
  const { upstream, gateway, ask } = await gatewayFixture(t);
  upstream.on(async (scripted) => {
    await scripted.body();
    await scripted.write('SMTP hello\r\n\r\n');
  });
  assertError(await ask(post()), 502, 'response_malformed');
  assert.deepEqual([...gateway.counters.decryptFailures], []);
});
