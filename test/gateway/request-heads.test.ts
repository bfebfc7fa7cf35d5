/**
 * Targets and header values: what Node refuses to send would throw in the middle of a request; others would
 * be injected into it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import type { RawAnswer } from '../support/doors/raw-client.ts';
import type { Script } from '../support/remote/scripted-upstream.ts';
import { chatStream, completion, http, openedRaw, plainError } from '../support/remote/sealed-answers.ts';

describe('request targets', { concurrency: true }, () => {
  const refused: [name: string, target: string][] = [
    ['dot segments', '/unstructured/../v1/chat/completions'],
    ['a dot segment at the end', '/v1/chat/completions/.'],
    ['escaped dot segments', '/unstructured/%2e%2E/v1/chat/completions'],
    ['half escaped dot segments', '/unstructured/.%2e/v1/models'],
    ['escaped slashes around dots', '/unstructured/..%2fv1/chat/completions'],
    ['dot segments without /v1', '/models/../v1/chat/completions'],
    ['a backslash instead of the last slash', '/chat/completions\\'],
    ['a backslash', '/unstructured\\..\\v1\\models'],
    ['an escaped backslash', '/unstructured/%5c../x'],
    ['absolute form', 'http://localhost:8080/v1/chat/completions'],
    ['absolute form of another host', 'https://evil.example/v1/chat/completions'],
    ['absolute form that no URL parser takes', 'http://['],
    ['authority form', 'evil.example:443'],
    ['asterisk form', '*'],
    ['a scheme without slashes', 'javascript:alert(1)'],
    ['a broken escape', '/unstructured/%zz'],
    ['an escaped NUL', '/unstructured/%00'],
    ['an escaped line break', '/unstructured/a%0d%0aX: y'],
    ['a fragment', '/v1/chat/completions#x'],
  ];
  for (const [name, target] of refused) {
    it(`${name}: refused, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const answer = await ask(post(chatBody(), { path: target }));
      assert.equal(answer.status, 400);
      assert.ok(!answer.body.includes(target), 'the target was quoted');
      assert.equal(upstream.connections.total, 0);
    });
  }

  const sent: [name: string, target: string, delivered: string][] = [
    [
      'a query, whatever is in it',
      '/v1/chat/completions?a=%2e%2e/&b=\\..\\&c=http://x//y?z',
      '/v1/chat/completions',
    ],
    ['a doubled slash', '//v1//chat/completions', '/v1/chat/completions'],
    ['a doubled /v1', '/v1/v1/chat/completions?beta=true', '/v1/chat/completions'],
    ['no /v1', '/chat/completions', '/v1/chat/completions'],
    ['a slash at the end', '/v1/chat/completions/', '/v1/chat/completions'],
  ];
  for (const [name, target, delivered] of sent) {
    it(`${name}: the canonical path arrives`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assert.equal((await ask(post(chatBody(), { path: target }))).status, 200);
      assert.equal(upstream.requests[0]?.target, delivered);
    });
  }

  it('allowed parameters arrive byte for byte, with both attempts', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const noSecret = plainError(500, 'no secret for ID');
    const again: Script = async (scripted) => {
      await scripted.body();
      await scripted.write(noSecret);
    };
    upstream.on(again, again);
    await ask(post(chatBody(), { path: '/v1/messages?x=1&beta=%74rue&beta=http://x//..&y' }));
    assert.deepEqual(
      upstream.requests.map(({ target }) => target),
      Array(2).fill('/v1/messages?beta=%74rue&beta=http://x//..'),
    );
  });

  it('a path below /unstructured that looks like another endpoint is still sealed as a whole', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: plainError(404, 'none') });
    await ask(post(chatBody(), { path: '/unstructured/v1/chat/completions' }));
    const [seen] = upstream.requests;
    assert.equal(seen?.target, '/unstructured/v1/chat/completions');
    assert.equal(openedRaw(seen?.body as Buffer).toString(), chatBody());
  });

  it('FORCE_FETCH_PATH in the environment does not make the gateway forward by fetch', async (t) => {
    process.env['FORCE_FETCH_PATH'] = 'true';
    t.after(() => {
      delete process.env['FORCE_FETCH_PATH'];
    });
    const { upstream, ask } = await gatewayFixture(t);
    upstream.on(
      async (scripted) => {
        await scripted.body();
        await scripted.write(
          'HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/models\r\nContent-Length: 0\r\n\r\n',
        );
      },
      async (scripted) => scripted.write(completion(await scripted.body())),
    );
    assertError(await ask(post()), 502, 'upstream_redirect');
    assert.equal(upstream.requests.length, 1);
    const names = Object.keys(upstream.requests[0]?.headers ?? {});
    assert.ok(!names.includes('sec-fetch-mode') && !names.includes('user-agent'), names.join());
  });
});

describe('header injection', { concurrency: true }, () => {
  const refused: [name: string, model: unknown][] = [
    ['a line break', 'm\r\nX-Injected: yes'],
    ['a bare line feed', 'm\nX-Injected: yes'],
    ['a NUL', 'm\0'],
    ['a tab', 'm\tx'],
    ['DEL', 'm\x7f'],
    ['257 bytes', 'm'.repeat(257)],
    ['a blank before it', ' m'],
    ['a blank behind it', 'm '],
    ['half a surrogate pair', '\ud800'],
    ['a number in place of a name', 42],
    ['a list in place of a name', ['m']],
  ];
  for (const [name, model] of refused) {
    it(`a model with ${name} is refused, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      assertError(await ask(post(chatBody({ model }))), 400, 'invalid_model');
      assert.equal(upstream.connections.total, 0);
    });
  }

  for (const model of [
    'модель-7',
    '模型',
    'm\u{1f600}',
    'm\u0085x',
    'Ünïcödé',
    'a'.repeat(256),
    'm  x',
    '\u00a0m',
  ]) {
    it(`the model ${JSON.stringify(model.slice(0, 9))} arrives as UTF-8 bytes`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assert.equal((await ask(post(chatBody({ model })))).status, 200);
      const header = upstream.requests[0]?.headers['privatemode-target-model'] ?? '';
      assert.equal(Buffer.from(header, 'latin1').toString('utf8'), model);
    });
  }

  it('the Host of the client is used neither as Host nor as TLS server name upstream', async (t) => {
    const { upstream, sending } = await gatewayFixture(t, { answers: completion });
    const asking = sending(post().toString('latin1').replace('Host: localhost:8080', 'Host: evil.example'));
    await asking.until(/HTTP\/1\.1 200/); // the certificate is for localhost alone
    assert.equal(upstream.requests[0]?.headers['host'], `localhost:${upstream.port}`);
  });

  for (const name of ['Host', 'Authorization', 'X-Api-Key', 'Content-Type', 'Origin', 'Sec-Fetch-Site']) {
    it(`two ${name} headers are refused, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const twice = [`${name}: localhost:8080`, `${name.toLowerCase()}: localhost:8080`];
      const answer = await ask(post(chatBody(), { headers: twice }));
      assert.equal(answer.status, 400);
      assert.match(answer.body, /"code":"ambiguous_header"/);
      assert.equal(upstream.connections.total, 0);
    });
  }

  const hosts = [
    '',
    'a,b',
    'user@localhost',
    'local host',
    'localhost/v1',
    'localhost:8080:1',
    'http://localhost',
  ];
  for (const host of hosts) {
    for (const [path, shape] of [
      ['/v1/chat/completions', /^\{"error":\{/],
      ['/v1/messages', /^\{"type":"error"/],
      ['/healthz', /^the header host is not one host name/],
    ] as const) {
      it(`Host: ${JSON.stringify(host)} on ${path} is refused in the caller's format`, async (t) => {
        const { upstream, sending } = await gatewayFixture(t);
        const asking = sending(post(chatBody(), { path }).toString('latin1').replace('localhost:8080', host));
        const answer = await answerTo(asking);
        assert.deepEqual([answer.status, answer.headers['privatemode-proxy-error']], [400, 'invalid_host']);
        assert.match(answer.body, shape);
        assert.ok(host === '' || !answer.body.includes(`"${host}`), 'the host was quoted');
        assert.equal(upstream.connections.total, 0);
      });
    }
  }

  it('a second Host is refused even if 2,100 headers stand between the two', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const filler = Array.from({ length: 2_100 }, (_, i) => `a${i}: b`);
    assertError(
      await ask(post(chatBody(), { headers: [...filler, 'Host: evil.example'] })),
      431,
      'too_many_headers',
    );
    assert.equal(upstream.connections.total, 0);
  });

  it('a request is sent even if a header value has bytes beyond ASCII', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: completion });
    const answer = await ask(post(chatBody(), { headers: ['Anthropic-Beta: caf\xe9 \x80', 'Accept: */*'] }));
    assert.equal(answer.status, 200);
    assert.equal(upstream.requests[0]?.headers['accept'], '*/*');
  });
});

const OURS = /^proxy_[0-9a-f-]{36}$/;
const sent =
  (id: string) =>
  (request: Buffer | string): string =>
    request.toString('latin1').replace('\r\n', `\r\nX-Request-Id: ${id}\r\n`);

describe('an x-request-id of the client', { concurrency: true, timeout: 600_000 }, () => {
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
    ['an error of the gateway about the body', post('{'), 400],
    ['an error of the gateway about the path', post('{}', { path: '/v1/files' }), 404],
    ['an error of the gateway about the answer', post(), 502, afterBody(() => http(302, ''))],
    ['an error in the Anthropic form', post('{', { path: '/v1/messages' }), 400],
    ['the estimate of tokens', post('{"model":"m"}', { path: '/v1/messages/count_tokens' }), 200],
    ['a path of the proxy itself', get('/healthz'), 200],
  ];
  for (const [name, request, status, script] of scenes) {
    it(`is echoed with ${name}, beside the id of the gateway`, async (t) => {
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

  it('is echoed with up to 128 characters', async (t) => {
    const long = 'x'.repeat(128);
    assert.equal((await ask(t, sent(long)(post('{')))).headers['x-request-id'], long);
    assert.match((await ask(t, sent(`${long}x`)(post('{')))).headers['x-request-id'] ?? '', OURS);
  });

  for (const id of ['', 'a b', 'a,b', 'a;b', 'a"b', '<script>', 'a\tb', 'caf\xe9', 'a\r\nX-Request-Id: b']) {
    it(`is replaced by the id of the gateway if it is ${JSON.stringify(id)}`, async (t) => {
      const { headers } = await ask(t, sent(id)(post('{')));
      assert.match(headers['x-request-id'] ?? '', OURS);
      assert.equal(headers['privatemode-proxy-request-id'], undefined);
    });
  }
});
