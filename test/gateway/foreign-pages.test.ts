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
import { completion } from '../support/remote/sealed-answers.ts';

const PAGE = 'https://chat.example';
const LISTED: CorsPolicy = { allowedOrigins: [PAGE], ownNames: ['127.0.0.1'] };
const BROWSER = 'User-Agent: Mozilla/5.0 (X11; Linux x86_64)';

const preflight = (origin: string): string =>
  [
    'OPTIONS /v1/chat/completions HTTP/1.1',
    'Host: localhost:8080',
    `Origin: ${origin}`,
    'Access-Control-Request-Method: POST',
    '\r\n',
  ].join('\r\n');

describe('a web page', { concurrency: true }, () => {
  it('gets 204 for a preflight from a listed origin, and 403 from another, and nothing is sent', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { cors: LISTED });
    const { status, headers } = await ask(preflight(PAGE));
    assert.deepEqual([status, headers['access-control-allow-origin']], [204, PAGE]);
    assert.match(headers['vary'] ?? '', /Origin/);
    const refused = await ask(preflight('https://evil.example'));
    assert.equal(refused.status, 403);
    assert.ok(!Object.keys(refused.headers).some((header) => header.startsWith('access-control-')));
    assert.equal(upstream.connections.total, 0);
  });

  it('is served from a listed origin with our CORS headers alone, also in errors, and may read the receipt', async (t) => {
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
    const error = await ask(post('{', { headers }));
    assert.deepEqual([error.status, error.headers['access-control-allow-origin']], [400, PAGE]);
  });

  it('gets 403 if its origin is not listed, or if the gateway would replace the key that it sets under a rebound name', async (t) => {
    const { upstream, gateway, ask, client } = await gatewayFixture(t, { cors: LISTED });
    assertError(
      await ask(post(chatBody(), { headers: ['Origin: https://evil.example'] })),
      403,
      'origin_forbidden',
    );
    const asking = client();
    const request = get('/v1/models', [BROWSER, 'Authorization: Bearer x']);
    asking.send(request.replace('Host: localhost:8080', 'Host: evil.example'));
    assertError(await answerTo(asking), 403, 'origin_forbidden');
    assert.equal(upstream.connections.total, 0);
    assert.deepEqual((gateway.session as unknown as { offered: unknown[] }).offered, []);
  });
});

describe('--allowed-hosts and the names of the program', { timeout: 600_000 }, () => {
  const rows: [name: string, host: string, headers: string[], served: boolean][] = [
    ['a browser at an allowed host', 'proxy.lab.example', [BROWSER], true],
    ['a browser at another host', 'evil.example', [BROWSER, 'X-Api-Key: x', 'Accept-Language: *'], false],
    ['a page of another origin', '127.0.0.1', ['Origin: http://evil.example'], false],
    ['a program at another host', 'proxy.default.svc', ['User-Agent: Prometheus/3.1'], true],
  ];
  let stack: Stack;
  let adminPort: number;
  before(async () => {
    adminPort = await freePort();
    const flags = [`--admin-address=127.0.0.1:${adminPort}`, '--allowed-hosts=proxy.lab.example'];
    stack = await startStack({ flags });
  });
  after(() => stack.close());

  for (const [name, host, headers, served] of rows) {
    it(`${name}: ${served ? 'served' : 'refused'} on both listeners`, async (t) => {
      for (const path of ['/healthz', '/metrics', '/status']) {
        const client = rawClient(path === '/healthz' ? Number(new URL(stack.url).port) : adminPort);
        t.after(() => client.socket.destroy());
        client.send(get(path, headers).replace('Host: localhost:8080', `Host: ${host}`));
        const answer = await answerTo(client);
        assert.equal(answer.status === 200, served, `${path}: status ${answer.status}`);
        assert.ok(served || !answer.body.includes('privatemode_proxy_'), 'the metrics were shown');
      }
    });
  }
});
