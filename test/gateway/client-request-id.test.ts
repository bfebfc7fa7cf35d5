/** The id that a client gives its request: it comes back on whatever is answered, beside ours, and goes no further. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import type { RawAnswer } from '../support/doors/raw-client.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import { chatStream, completion, http, plainError } from '../support/remote/sealed-answers.ts';

const OURS = /^proxy_[0-9a-f-]{36}$/;
const sent =
  (id: string) =>
  (request: Buffer | string): string =>
    request.toString('latin1').replace('\r\n', `\r\nX-Request-Id: ${id}\r\n`);

describe('an x-request-id of the client', { concurrency: true, timeout: 30_000 }, () => {
  const ID = 'trace:4bf9-2f.35_7';
  const withId = sent(ID);
  const afterBody =
    (text: (body: Buffer) => string): Script =>
    async (scripted) =>
      scripted.write(text(await scripted.body()));

  const scenes: [name: string, request: Buffer | string, status: number, script?: Script][] = [
    [
      'a whole answer',
      post(),
      200,
      afterBody((body) => completion(body, { 'X-Request-Id': 'of-the-service' })),
    ],
    ['a stream', post(chatBody({ stream: true })), 200, afterBody(chatStream)],
    ['an error of the service', post(), 400, afterBody(() => plainError(400, 'no'))],
    ['the list of models', get('/v1/models'), 200, (scripted) => scripted.write(http(200, '{"data":[]}'))],
    ['an error of ours, about the body', post('{'), 400],
    ['an error of ours, about the path', post('{}', { path: '/v1/files' }), 404],
    ['an error of ours, about the answer', post(), 502, afterBody(() => http(302, ''))],
    ['an error in the Anthropic form', post('{', { path: '/v1/messages' }), 400],
    ['the estimate of tokens', post('{"model":"m"}', { path: '/v1/messages/count_tokens' }), 200],
    ['what the proxy says about itself', get('/healthz'), 200],
  ];
  for (const [name, request, status, script] of scenes) {
    it(`${name}: echoed, with our own id beside it`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      if (script !== undefined) upstream.on(script);
      const { headers, ...answer } = await ask(withId(request));
      assert.equal(answer.status, status);
      assert.equal(headers['x-request-id'], ID);
      assert.match(headers['privatemode-proxy-request-id'] ?? '', OURS);
      assert.ok(!upstream.received().includes(ID), 'it was forwarded');
    });
  }

  const ask = async (t: Parameters<typeof gatewayFixture>[0], request: string): Promise<RawAnswer> =>
    (await gatewayFixture(t)).ask(request);

  it('128 characters are echoed, 129 are not', async (t) => {
    const long = 'x'.repeat(128);
    assert.equal((await ask(t, sent(long)(post('{')))).headers['x-request-id'], long);
    assert.match((await ask(t, sent(`${long}x`)(post('{')))).headers['x-request-id'] ?? '', OURS);
  });

  for (const id of ['', 'a b', 'a,b', 'a;b', 'a"b', '<script>', 'a\tb', 'caf\xe9', 'a\r\nX-Request-Id: b']) {
    it(`${JSON.stringify(id)} is none: ours stands in its place`, async (t) => {
      const { headers } = await ask(t, sent(id)(post('{')));
      assert.match(headers['x-request-id'] ?? '', OURS);
      assert.equal(headers['privatemode-proxy-request-id'], undefined);
    });
  }
});
