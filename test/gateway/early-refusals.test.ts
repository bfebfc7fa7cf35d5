/**
 * What the head of a request decides. A refusal while the body still arrives must not close at once, which
 * would reset the connection and lose the response (RFC 9112 9.6).
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { PrivatemodeError } from '../../lib/errors.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import type { Reply } from '../support/remote/scripted-upstream.ts';
import { chatStream, completion, plainError } from '../support/remote/sealed-answers.ts';

const settings = { maxBodyBytes: 100_000 };
const times = { discardWait: 300 };

describe('refusals before the end of the upload', { concurrency: true }, () => {
  it('a declared body over the limit is refused at once, and nothing is sent', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { settings, times });
    const asking = sending(post('{"model":', { headers: ['Content-Length: 100001'] }));
    const answer = await answerTo(asking); // the rest of the body never comes
    assertError(answer, 413, 'body_too_large');
    assert.equal(answer.headers['connection'], 'close');
    assert.equal(await asking.ended, 'end');
    assert.equal(upstream.connections.total, 0);
  });

  it('a chunked body is refused with 413 as soon as it exceeds the limit', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { settings });
    const endless = `10\r\n{"model":"m","a"\r\n2\r\n:"\r\n${`1000\r\n${'x'.repeat(4096)}\r\n`.repeat(40)}`;
    const asking = sending(post(endless, { headers: ['Transfer-Encoding: chunked'] }));
    assertError(await answerTo(asking, 9_000), 413, 'body_too_large');
    assert.equal(upstream.connections.total, 0);
  });

  it('a body that is refused by its head, and announced with Expect, gets no 100', async (t) => {
    const { sending } = await gatewayFixture(t, { settings });
    for (const [status, headers] of [
      [413, ['Content-Length: 100001']],
      [403, ['Content-Length: 9', 'Origin: https://foreign.example', 'Sec-Fetch-Site: cross-site']],
    ] as const) {
      const asking = sending(post('', { headers: [...headers, 'Expect: 100-continue'] }));
      assert.equal((await answerTo(asking)).status, status);
      assert.ok(!asking.received().includes(' 100 '));
    }
  });

  it('a body of exactly the limit passes, and gets its 100 before, if it is announced with Expect', async (t) => {
    const { sending } = await gatewayFixture(t, { answers: completion, settings });
    const body = chatBody({ user: 'x'.repeat(settings.maxBodyBytes - chatBody({ user: '' }).length) });
    const asking = sending(post('', { headers: [`Content-Length: ${body.length}`, 'Expect: 100-continue'] }));
    await asking.until(/^HTTP\/1\.1 100 Continue\r\n\r\n/);
    asking.send(body);
    assert.equal((await answerTo(asking)).status, 200);
  });

  it('the rest of a refused body is thrown away up to a bounded length', async (t) => {
    const { sending } = await gatewayFixture(t, { settings, times: { discardWait: 600_000 } });
    const asking = sending(post('{', { headers: ['Content-Length: 200000000'] }));
    const timer = setInterval(() => asking.socket.writable && asking.send(Buffer.alloc(300_000)), 20);
    t.after(() => clearInterval(timer));
    await asking.ended; // long before the time is over
    assert.ok(asking.socket.bytesWritten < 100_000_000, `${asking.socket.bytesWritten} bytes`);
  });

  it('a request to a service that is not verified gets 503 not_ready before the rest of the body has arrived', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, {
      session: fakeSession({
        acquire: async () => {
          await turn();
          throw new PrivatemodeError('not_ready', 'not yet');
        },
      }),
    });
    const asking = sending(post(chatBody(), { headers: ['Content-Length: 100000'] }));
    const answer = await answerTo(asking);
    assertError(answer, 503, 'not_ready');
    assert.equal(answer.headers['retry-after'], '2');
    assert.equal(upstream.connections.total, 0);
  });

  it('a compressed body is refused, whichever header says so', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    for (const [body, header] of [
      [chatBody(), 'Content-Encoding: gzip'],
      ['1\r\n{\r\n0\r\n\r\n', 'Transfer-Encoding: gzip, chunked'],
    ] as const)
      assertError(await ask(post(body, { headers: [header] })), 415, 'unsupported_encoding');
    assert.equal(upstream.connections.total, 0);
  });
});

it('a request is not fetched with FORCE_FETCH_PATH in the environment, and no redirect is followed', async (t) => {
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
