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

it('a web page gets the answer to its preflight, and is served, only from a listed origin, with our CORS headers alone', async (t) => {
  const { upstream, ask } = await gatewayFixture(t, { cors: LISTED });
  const preflight = (origin: string) =>
    get('/v1/chat/completions', [`Origin: ${origin}`, 'Access-Control-Request-Method: POST']).replace(
      'GET',
      'OPTIONS',
    );
  const allowed = await ask(preflight(PAGE));
  assert.deepEqual([allowed.status, allowed.headers['access-control-allow-origin']], [204, PAGE]);
  const refused = await ask(preflight('https://evil.example'));
  assertError(refused, 403, 'origin_forbidden');
  assert.ok(!Object.keys(refused.headers).some((header) => header.startsWith('access-control-')));
  assert.equal(upstream.connections.total, 0);

  const forged = { 'Access-Control-Allow-Origin': '*', 'Access-Control-Allow-Credentials': 'true' };
  upstream.answers((request) => completion(request, { ...forged, Vary: 'Accept' }));
  const headers = [`Origin: ${PAGE}`, 'Sec-Fetch-Site: cross-site'];
  for (const [body, status] of [
    [chatBody(), 200],
    ['{', 400],
  ] as const) {
    const answer = await ask(post(body, { headers }));
    assert.deepEqual([answer.status, answer.headers['access-control-allow-origin']], [status, PAGE]);
    assert.equal(answer.headers['access-control-allow-credentials'], undefined);
    assert.equal(answer.headers['vary'], 'Origin');
  }
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
