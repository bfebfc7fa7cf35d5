/** That the rules of cors.test.ts are asked, over real connections, on both listeners. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { CorsPolicy } from '../../lib/gateway/cors.ts';
import {
  answerTo,
  assertError,
  chatBody,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { completion, plainError } from '../support/remote/sealed-answers.ts';

const PAGE = 'https://chat.example';
const LISTED: CorsPolicy = { allowedOrigins: [PAGE], ownNames: ['127.0.0.1'] };
const ANY: CorsPolicy = { allowedOrigins: ['*'], ownNames: ['127.0.0.1'] };
const OFF: CorsPolicy = { allowedOrigins: [], ownNames: ['127.0.0.1'] };

const preflight = (origin: string, ...headers: string[]): string =>
  [
    'OPTIONS /v1/chat/completions HTTP/1.1',
    'Host: localhost:8080',
    `Origin: ${origin}`,
    'Access-Control-Request-Method: POST',
    'Access-Control-Request-Headers: authorization, content-type, x-stainless-os',
    ...headers,
    '\r\n',
  ].join('\r\n');

describe('preflights', { concurrency: true }, () => {
  it('are answered by the gateway, for a day, if the origin is listed', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { cors: LISTED });
    const { status, headers } = await ask(preflight(PAGE));
    assert.equal(status, 204);
    assert.equal(headers['access-control-allow-origin'], PAGE);
    assert.equal(headers['access-control-max-age'], '86400');
    assert.equal(headers['access-control-allow-methods'], 'GET, HEAD, POST, OPTIONS');
    assert.equal(headers['access-control-allow-headers'], 'authorization, content-type, x-stainless-os');
    assert.match(headers['vary'] ?? '', /Origin/);
    assert.equal(headers['access-control-allow-credentials'], undefined);
    assert.equal(upstream.connections.total, 0);
  });

  it('are answered with * if any origin is allowed', async (t) => {
    const { ask } = await gatewayFixture(t, { cors: ANY });
    const { status, headers } = await ask(preflight('https://anywhere.example'));
    assert.deepEqual([status, headers['access-control-allow-origin']], [204, '*']);
  });

  const refused: [name: string, cors: CorsPolicy, origin: string, status: number][] = [
    ['from an origin that is not listed', LISTED, 'https://evil.example', 403],
    ['while CORS is off', OFF, PAGE, 403],
    ["from the gateway's own page, which needs none", OFF, 'http://localhost:8080', 405],
  ];
  for (const [name, cors, origin, status] of refused) {
    it(`get ${status} and no CORS headers ${name}`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { cors });
      const answer = await ask(preflight(origin));
      assert.equal(answer.status, status);
      const names = Object.keys(answer.headers).filter((header) => header.startsWith('access-control-'));
      assert.deepEqual(names, []);
      assert.equal(upstream.connections.total, 0);
    });
  }
});

describe('a request of a web page', { concurrency: true }, () => {
  it('is served from a listed origin, and the page may read the receipt', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { cors: LISTED });
    upstream.on(async (scripted) => {
      const answer = completion(await scripted.body(), {
        'Access-Control-Allow-Origin': 'https://evil.example',
        'Access-Control-Allow-Credentials': 'true',
        Vary: 'Accept',
      });
      await scripted.write(answer);
    });
    const headers = [`Origin: ${PAGE}`, 'Sec-Fetch-Site: cross-site'];
    const answer = await ask(post(chatBody(), { headers }));
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['access-control-allow-origin'], PAGE);
    assert.equal(answer.headers['access-control-allow-credentials'], undefined);
    assert.equal(answer.headers['vary'], 'Origin');
    assert.match(answer.headers['access-control-expose-headers'] ?? '', /Privatemode-Proxy-Secret-Id/);
    const names = Object.keys(upstream.requests[0]?.headers ?? {});
    assert.ok(!names.includes('origin') && !names.includes('sec-fetch-site'), names.join());
  });

  it('gets CORS headers also with errors of the gateway and errors of the service', async (t) => {
    const { ask } = await gatewayFixture(t, { answers: plainError(429, 'slow down'), cors: LISTED });
    for (const [body, status] of [
      ['{', 400],
      [chatBody(), 429],
    ] as const) {
      const answer = await ask(post(body, { headers: [`Origin: ${PAGE}`] }));
      assert.equal(answer.status, status);
      assert.equal(answer.headers['access-control-allow-origin'], PAGE);
    }
  });

  it('gets a 403 that names the flag if its origin is not listed, and nothing is sent', async (t) => {
    const { upstream, gateway, ask } = await gatewayFixture(t, { cors: LISTED });
    const answer = await ask(post(chatBody(), { headers: ['Origin: https://evil.example'] }));
    assertError(answer, 403, 'origin_forbidden');
    assert.match(answer.body, /--cors-allowed-origins/);
    assert.equal(answer.headers['access-control-allow-origin'], undefined);
    assert.equal(upstream.connections.total, 0);
    assert.deepEqual((gateway.session as unknown as { offered: unknown[] }).offered, []);
  });

  it('gets 403 under a rebound host name even without Origin and Sec-Fetch-Site if the gateway replaces its key', async (t) => {
    const { upstream, client } = await gatewayFixture(t, { cors: OFF });
    const asking = client();
    const agent = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64)';
    asking.send(
      get('/v1/models', [agent, 'Authorization: Bearer x']).replace(
        'Host: localhost:8080',
        'Host: evil.example',
      ),
    );
    const answer = await answerTo(asking);
    assertError(answer, 403, 'origin_forbidden');
    assert.match(answer.body, /--allowed-hosts/);
    assert.equal(upstream.connections.total, 0);
  });

  it("is served from the gateway's own page", async (t) => {
    const { ask } = await gatewayFixture(t, { answers: completion, cors: OFF });
    const headers = ['Origin: http://localhost:8080', 'Sec-Fetch-Site: same-origin'];
    assert.equal((await ask(post(chatBody(), { headers }))).status, 200);
  });
});

describe('--allowed-hosts and the names of the program', { timeout: 600_000 }, () => {
  const BROWSER = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64)';
  const rows: [name: string, host: string, headers: string[], served: boolean][] = [
    ['a browser at an allowed host', 'proxy.lab.example', [BROWSER], true],
    ['a browser at another host', 'evil.example', [BROWSER], false],
    ['a page of another origin', '127.0.0.1', ['Origin: http://evil.example'], false],
    ['a program at another host', 'proxy.default.svc', ['User-Agent: Prometheus/3.1'], true],
    ['two hosts in one header', '127.0.0.1, proxy.lab.example', [], false],
  ];
  let stack: Stack;
  let metricsPort: number;
  before(async () => {
    metricsPort = await freePort();
    const flags = [`--admin-address=127.0.0.1:${metricsPort}`, '--allowed-hosts=proxy.lab.example'];
    stack = await startStack({ flags });
  });
  after(() => stack.close());

  for (const [name, host, headers, served] of rows) {
    for (const path of ['/healthz', '/metrics']) {
      it(`${name} that asks for ${path}: ${served ? 'served' : 'refused'}`, async (t) => {
        const client = rawClient(path === '/metrics' ? metricsPort : Number(new URL(stack.url).port));
        t.after(() => client.socket.destroy());
        client.send(get(path, headers).replace('Host: localhost:8080', `Host: ${host}`));
        const answer = await answerTo(client);
        assert.equal(answer.status === 200, served, `status ${answer.status}`);
        assert.equal(answer.headers['privatemode-proxy-error'] === undefined, served);
        assert.ok(served || !answer.body.includes('privatemode_proxy_'), 'the metrics were shown');
      });
    }
  }

  for (const path of ['/', '/status', '/verification', '/metrics']) {
    it(`a browser at another host gets 403 for ${path}, whatever key its page sets`, async (t) => {
      const client = rawClient(metricsPort);
      t.after(() => client.socket.destroy());
      const headers = [BROWSER, 'Authorization: Bearer x', 'X-Api-Key: x', 'Accept-Language: *'];
      client.send(get(path, headers).replace('Host: localhost:8080', 'Host: evil.example'));
      assert.equal((await answerTo(client)).status, 403);
    });
  }
});
