/** Header values that Node refuses to send would throw in the middle of a request; others would be injected into it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answerTo, chatBody, codeOf, gatewayFixture, post } from '../support/gateway-fixture.ts';
import { completion } from '../support/sealed-answers.ts';

describe('header injection', { concurrency: true }, () => {
  const refused: [name: string, model: unknown][] = [
    ['a line break', 'm\r\nX-Injected: yes'],
    ['a bare line feed', 'm\nX-Injected: yes'],
    ['a NUL', 'm\0'],
    ['a tab', 'm\tx'],
    ['DEL', 'm\x7f'],
    ['257 bytes', 'm'.repeat(257)],
    ['half a surrogate pair', '\ud800'],
    ['no text', 42],
    ['a list', ['m']],
  ];
  for (const [name, model] of refused) {
    it(`a model of ${name} is refused, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const answer = await ask(post(chatBody({ model })));
      assert.deepEqual([answer.status, codeOf(answer)], [400, 'invalid_model']);
      assert.equal(upstream.connections.total, 0);
    });
  }

  for (const model of ['модель-7', '模型', 'm\u{1f600}', 'm\u0085x', 'Ünïcödé', 'a'.repeat(256), ' m ']) {
    it(`the model ${JSON.stringify(model.slice(0, 9))} arrives as UTF-8 bytes`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assert.equal((await ask(post(chatBody({ model })))).status, 200);
      const header = upstream.requests[0]?.headers['privatemode-target-model'] ?? '';
      assert.equal(Buffer.from(header, 'latin1').toString('utf8').trim(), model.trim());
    });
  }

  it("the client's Host becomes neither Host nor TLS name of the remote", async (t) => {
    const { upstream, client } = await gatewayFixture(t, { answers: completion });
    const asking = client();
    asking.send(post().toString('latin1').replace('Host: localhost:8080', 'Host: evil.example'));
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
        const { upstream, client } = await gatewayFixture(t);
        const asking = client();
        asking.send(post(chatBody(), { path }).toString('latin1').replace('localhost:8080', host));
        const answer = await answerTo(asking);
        assert.deepEqual([answer.status, answer.headers['privatemode-proxy-error']], [400, 'invalid_host']);
        assert.match(answer.body, shape);
        assert.ok(host === '' || !answer.body.includes(`"${host}`), 'the host was quoted');
        assert.equal(upstream.connections.total, 0);
      });
    }
  }

  it('a second Host is refused however many headers stand between the two', async (t) => {
    const { upstream, ask } = await gatewayFixture(t);
    const filler = Array.from({ length: 2_100 }, (_, i) => `a${i}: b`);
    const answer = await ask(post(chatBody(), { headers: [...filler, 'Host: evil.example'] }));
    assert.deepEqual([answer.status, codeOf(answer)], [431, 'too_many_headers']);
    assert.equal(upstream.connections.total, 0);
  });

  it('values that Node would refuse to send are left out, not thrown at', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { answers: completion });
    const answer = await ask(post(chatBody(), { headers: ['Anthropic-Beta: caf\xe9 \x80', 'Accept: */*'] }));
    assert.equal(answer.status, 200);
    assert.equal(upstream.requests[0]?.headers['accept'], '*/*');
  });
});
