/**
 * Targets and header values on the wire: what Node refuses to send would throw in the middle of a request;
 * others would be injected into it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { assertError, chatBody, gatewayFixture, get, post } from '../support/doors/gateway-fixture.ts';
import type { Reply } from '../support/remote/scripted-upstream.ts';
import { chatStream, completion, plainError } from '../support/remote/sealed-answers.ts';

describe('request targets', { concurrency: true }, () => {
  it('have their allowed parameters byte for byte, with both attempts', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    upstream.answers(plainError(500, 'no secret for ID'));
    await ask(post(chatBody(), { path: '/v1/messages?x=1&beta=%74rue&beta=http://x//..&y' }));
    assert.deepEqual(
      upstream.requests.map(({ target }) => target),
      Array(2).fill('/v1/messages?beta=%74rue&beta=http://x//..'),
    );
  });

  it('are not fetched with FORCE_FETCH_PATH in the environment, and no redirect is followed', async (t) => {
    process.env['FORCE_FETCH_PATH'] = 'true';
    t.after(() => {
      delete process.env['FORCE_FETCH_PATH'];
    });
    const { upstream, ask } = await gatewayFixture(t);
    upstream.answers('HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/models\r\nContent-Length: 0\r\n\r\n');
    assertError(await ask(post()), 502, 'upstream_redirect');
    assert.equal(upstream.requests.length, 1);
    const names = Object.keys(upstream.requests[0]?.headers ?? {});
    assert.ok(!names.includes('sec-fetch-mode') && !names.includes('user-agent'), names.join());
  });
});

describe('request heads', { concurrency: true }, () => {
  it('have the Host of the service, and none of the client, nor is it used as TLS server name', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { answers: completion });
    const asking = sending(post().toString('latin1').replace('Host: localhost:8080', 'Host: evil.example'));
    await asking.until(/HTTP\/1\.1 200/); // the certificate is for localhost alone
    assert.equal(upstream.requests[0]?.headers['host'], `localhost:${upstream.port}`);
  });
});

describe('an x-request-id of the client', { concurrency: true, timeout: 600_000 }, () => {
  const OURS = /^proxy_[0-9a-f-]{36}$/;
  const ID = 'trace:4bf9-2f.35_7';
  const withId = (request: Buffer | string, id = ID): string =>
    request.toString('latin1').replace('\r\n', `\r\nX-Request-Id: ${id}\r\n`);

  const scenes: [name: string, request: Buffer | string, status: number, reply?: Reply][] = [
    ['a whole answer', post(), 200, (body) => completion(body, { 'X-Request-Id': 'of-the-service' })],
    ['a stream', post(chatBody({ stream: true })), 200, chatStream],
    ['an error of the service', post(), 400, plainError(400, 'no')],
    ['an error of the gateway', post('{', { path: '/v1/messages' }), 400],
    ['the estimate of tokens', post('{"model":"m"}', { path: '/v1/messages/count_tokens' }), 200],
    ['a path of the proxy itself', get('/healthz'), 200],
  ];
  it('is echoed with each kind of answer, beside the id of the gateway, and not forwarded', async (t) => {
    for (const [name, request, status, answers] of scenes) {
      const { upstream, ask } = await gatewayFixture(t, answers === undefined ? {} : { answers });
      const { headers, ...answer } = await ask(withId(request));
      assert.deepEqual([answer.status, headers['x-request-id']], [status, ID], name);
      assert.match(headers['privatemode-proxy-request-id'] ?? '', OURS);
      assert.ok(!upstream.received().includes(ID), 'it was forwarded');
    }
  });

  it('is replaced by the id of the gateway if it is longer than 128 characters or no plain id', async (t) => {
    const { ask } = await gatewayFixture(t);
    const idFor = async (id: string) => (await ask(withId(post('{'), id))).headers;
    assert.equal((await idFor('x'.repeat(128)))['x-request-id'], 'x'.repeat(128));
    const wrong = ['', 'a b', 'a,b', 'a"b', '<script>', 'a\tb', 'caf\xe9', 'a\r\nX-Request-Id: b'];
    for (const id of ['x'.repeat(129), ...wrong]) {
      const headers = await idFor(id);
      assert.match(headers['x-request-id'] ?? '', OURS, id);
      assert.equal(headers['privatemode-proxy-request-id'], undefined);
    }
  });
});
