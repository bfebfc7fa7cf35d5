/**
 * Responses of the service at unusual times: before the upload is over, before any event, 1xx without end,
 * and refused ones that never end.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answerTo, assertError, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { eventually } from '../support/processes/eventually.ts';
import { chatStream, openedRequest, plainError, STREAM_HEAD } from '../support/remote/sealed-answers.ts';

const LARGE = chatBody({ user: 'x'.repeat(8_000_000) });
const settings = { maxBodyBytes: 10_000_000 };

describe('a response before the end of the upload', { concurrency: true }, () => {
  it('a 401 with a reset behind it during the upload gives one 401, and the request is not sent again', async (t) => {
    const { upstream, client } = await gatewayFixture(t, { settings });
    const asking = client();
    upstream.on(async (scripted) => {
      scripted.pause();
      await scripted.write(plainError(401, 'no such key'));
      await asking.until(/the service rejects the API key/);
      scripted.reset();
    });
    asking.send(post(LARGE));
    const answer = await answerTo(asking);
    assert.equal(answer.status, 401);
    assert.equal(answer.rest, '');
    assert.equal(upstream.requests.length, 1);
  });

  it('an answer before the end of the upload ends the upload', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { settings });
    const { promise: answered, resolve: answers } = Promise.withResolvers<void>();
    upstream.on(async (scripted) => {
      scripted.pause();
      await scripted.write(plainError(413, 'maximum request size exceeded'));
      await answered;
      scripted.resume();
    });
    const answer = await ask(post(LARGE));
    assert.equal(answer.status, 413);
    answers();
    await eventually(
      'the end of the connection with half a request in it',
      () => upstream.connections.open === 0,
    );
    assert.equal(upstream.requests[0]?.complete, false);
  });

  it('the rest of the body is sealed correctly although a stream has begun during the upload', async (t) => {
    const { upstream, client } = await gatewayFixture(t, { settings });
    const asking = client();
    const { promise: arrived, resolve: arrives, reject: lost } = Promise.withResolvers<Buffer>();
    upstream.on(async (scripted) => {
      scripted.pause();
      await scripted.write(STREAM_HEAD);
      await asking.until(/^HTTP\/1\.1 200 /);
      scripted.resume();
      scripted.body().then(arrives, lost);
      const body = await arrived;
      await scripted.write(chatStream(body).slice(STREAM_HEAD.length));
    });
    const messages = [{ role: 'user', content: 'x'.repeat(8_000_000) }];
    asking.send(post(chatBody({ messages, stream: true })));
    const answer = await answerTo(asking);
    assert.equal(openedRequest(await arrived).get('messages'), JSON.stringify(messages));
    assert.match(answer.body, /data: \[DONE\]\n\n$/);
  });
});

const BURST = [
  'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n',
  'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n',
].join('');

describe('informational responses', { concurrency: true }, () => {
  it('do not postpone the time-out of the first byte', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { settings: { firstByteTimeout: 300 } });
    upstream.on(async (scripted) => {
      await scripted.body();
      const timer = setInterval(() => scripted.write(BURST), 20);
      await scripted.closed.finally(() => clearInterval(timer));
    });
    assertError(await ask(post()), 504, 'first_byte_timeout');
  });

  it('of status 101 become 502 upstream_reset', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, {
      answers: 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n',
    });
    assertError(await ask(post()), 502, 'upstream_reset');
    assert.equal(upstream.requests.length, 1);
  });
});

it('the head of a stream reaches the client before there is any event', async (t) => {
  const { upstream, sending } = await gatewayFixture(t, { answers: STREAM_HEAD });
  const asking = sending(post(chatBody({ stream: true })));
  const head = await asking.until(/\r\n\r\n/);
  assert.match(head, /^HTTP\/1.1 200 .*content-type: text\/event-stream/is);
  assert.equal(upstream.connections.open, 1);
});

it('the connection to the service is closed during a refused answer that never ends', async (t) => {
  const { upstream, ask } = await gatewayFixture(t);
  const ok = 'HTTP/1.1 200 OK\r\n';
  for (const [head, status, code] of [
    ['HTTP/1.1 308 Moved\r\nLocation: /x\r\n', 502, 'upstream_redirect'],
    [`${ok}Content-Encoding: gzip\r\n`, 502, 'response_malformed'],
    [`${ok}Privatemode-Encrypted: false\r\n`, 502, 'response_not_encrypted'],
    [`${ok}Content-Type: text/event-stream\r\n`, 502, 'response_malformed'],
    ['HTTP/1.1 429 No\r\nContent-Encoding: gzip\r\n', 429, 'response_malformed'],
  ] as const) {
    upstream.answers(`${head}Transfer-Encoding: chunked\r\n\r\n1\r\n.\r\n`);
    assertError(await ask(post()), status, code);
    await eventually('its end', () => upstream.connections.open === 0);
  }
});
