/**
 * What the gateway answers itself. How each path is read is test/api/endpoints.test.ts; that the official
 * clients reach every endpoint is test/applications/.
 */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { gatewayFixture, get } from '../support/doors/gateway-fixture.ts';

const ANSWERS: readonly (readonly [path: string, status: number, body: RegExp])[] = [
  ['/', 200, /^privatemode-proxy v\d/],
  ['/api/hello', 200, /^ok\n$/],
  ['/healthz', 200, /^ok\n$/],
  ['/readyz', 204, /^$/],
  [
    '/v1',
    200,
    /^\{"name":"privatemode-proxy","version":"[^"]+","endpoints":\["POST \/v1\/chat\/completions",/,
  ],
  ['/privatemode/v1/secret', 404, /no such endpoint/],
];

it('the gateway answers by itself what the service does not get, and no browser renders it', async (t) => {
  const { upstream, ask } = await gatewayFixture(t);
  for (const [path, status, body] of ANSWERS) {
    const answer = await ask(get(path));
    assert.equal(answer.status, status, path);
    assert.match(answer.body, body);
    assert.equal('privatemode-proxy-error' in answer.headers, status >= 400);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.equal(answer.headers['content-security-policy'], 'sandbox');
  }
  assert.equal(upstream.connections.total, 0);
});
