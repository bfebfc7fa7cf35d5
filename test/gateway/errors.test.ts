/**
 * Errors that the fault matrix (test/faults/matrix.ts) cannot arm, and what the gateway answers itself. Each
 * code's form is test/api/error-response.test.ts; if a head is read, test/http-rules/response-kind.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ERRORS, type ErrorCode, PrivatemodeError } from '../../lib/errors.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import {
  assertError,
  CANARY,
  chatBody,
  codeOf,
  gatewayFixture,
  get,
  post,
} from '../support/doors/gateway-fixture.ts';
import type { RawAnswer } from '../support/doors/raw-client.ts';
import { eventually } from '../support/processes/eventually.ts';
import { http, plainError } from '../support/remote/sealed-answers.ts';

const JSON_TYPE = { 'Content-Type': 'application/json' };
const PLAIN = { 'Privatemode-Encrypted': 'false' };
const MESSAGES = { path: '/v1/messages' };
/** The rules that hold for every error answer of ours, in either API style. */
function assertOurs(answer: RawAnswer, status: number, code: ErrorCode): void {
  assert.deepEqual([answer.status, codeOf(answer)], [status, code]);
  assert.equal(status, ERRORS[code].status);
  assert.equal(answer.headers['privatemode-encrypted'], 'false');
  assert.equal(answer.headers['content-type'], 'application/json');
  const remedy = JSON.stringify(ERRORS[code].remedies.operator).slice(1, -1);
  assert.ok(answer.body.includes(remedy), 'it does not say what to do');
  assert.ok(!answer.body.includes(CANARY), 'it quotes the request');
  assert.equal(answer.headers['privatemode-proxy-secret-id'], undefined, 'nothing protected this');
  assert.equal(answer.headers['privatemode-proxy-error'], code);
  assert.equal(answer.headers['privatemode-proxy-unauthenticated'], undefined, 'these are our own words');
  assertUnauthenticated(answer);
}

/** What nothing authenticates: ids, date and cache headers are ours, and nothing runs in a browser. */
function assertUnauthenticated({ headers }: RawAnswer): void {
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['content-security-policy'], 'sandbox');
  const ids = [headers['x-request-id'], headers['request-id']].filter((id) => id !== undefined);
  assert.equal(ids.length, 1);
  assert.match(String(ids[0]), /^proxy_[0-9a-f-]{36}$/);
  assert.equal(headers['cache-control'], 'no-store');
  assert.ok(Math.abs(Date.parse(headers['date'] ?? '') - Date.now()) < 60_000, String(headers['date']));
  for (const name of ['age', 'expires', 'etag']) assert.equal(headers[name], undefined, name);
}

it('what is refused before anything is sent, or is no response that may be shown, has an error of ours in either API style', async (t) => {
  const acquire = () => Promise.reject(new PrivatemodeError('attestation_failed', 'words'));
  for (const [body, status, code, session] of [
    ['{', 400, 'invalid_json', fakeSession()],
    [chatBody(), 400, 'attestation_failed', fakeSession({ acquire })],
    [chatBody(), 502, 'response_malformed', fakeSession()],
  ] as const) {
    const answers = http(200, '{}', { X: 'y'.repeat(100_000) }); // a head that is too long
    const { upstream, ask } = await gatewayFixture(t, { session, answers });
    assertOurs(await ask(post(body)), status, code);
    const anthropic = await ask(post(body, MESSAGES));
    assertOurs(anthropic, status, code);
    assert.match(anthropic.body, /^\{"type":"error",.*"request_id":"proxy_[0-9a-f-]{36}"\}$/);
    assert.equal(upstream.requests.length, status === 502 ? 2 : 0);
  }
});

/** What a service might say of itself to pass for us, or to be kept for good. */
const PRETENDING = {
  ...{ 'X-Request-Id': 'req_forged', 'Request-Id': 'req_forged', Date: 'Thu, 01 Jan 2099 00:00:00 GMT' },
  ...{ 'Cache-Control': 'public, max-age=31536000', Age: '1', Expires: 'never', ETag: '"x"' },
};

/** What clients act on, whoever says it. */
const HINTS = { 'Retry-After': '7', 'X-RateLimit-Limit': '9' };
const assertHints = ({ headers }: RawAnswer): void =>
  assert.deepEqual([headers['retry-after'], headers['x-ratelimit-limit']], ['7', '9']);

describe('an error of the service', { concurrency: true }, () => {
  it('is shown and marked if it declares itself plain, with its Retry-After but without its ids and dates', async (t) => {
    const { ask } = await gatewayFixture(t, {
      answers: plainError(429, 'words of the service', { ...HINTS, ...PRETENDING }),
    });
    const answer = await ask(post());
    assert.equal(answer.status, 429);
    assert.equal(answer.body, '{"error":{"message":"words of the service","type":"server_error"}}');
    assert.equal(answer.headers['content-type'], 'application/json');
    assert.equal(answer.headers['privatemode-encrypted'], 'false');
    assert.equal(answer.headers['privatemode-proxy-unauthenticated'], 'true');
    assert.equal(answer.headers['privatemode-proxy-error'], undefined, 'it is not our own');
    assert.equal(answer.headers['privatemode-proxy-secret-id'], undefined, 'nothing protected this');
    assertHints(answer);
    assertUnauthenticated(answer);
  });

  const stream = post(chatBody({ stream: true }), MESSAGES);
  for (const [what, status, type, headers] of [
    ['neither sealed nor declared plain', 429, 'rate_limit_error', { 'Content-Type': 'text/plain' }],
    ['of a gateway', 401, 'authentication_error', JSON_TYPE],
    ['compressed', 502, 'api_error', { ...JSON_TYPE, 'Content-Encoding': 'gzip' }],
    ['declared plain, but compressed', 503, 'overloaded_error', { ...PLAIN, 'Content-Encoding': 'br' }],
  ] as const) {
    it(`keeps its status and its Retry-After, but not its text, and does not say that it was tampered with, if it is ${what}`, async (t) => {
      const { upstream, ask, gateway } = await gatewayFixture(t, {
        deps: { key: { value: () => undefined } },
      });
      const text = 'event: error\ndata: {"error":{"message":"visit https://evil.example"}}\n\n';
      upstream.answers(http(status, text, { ...headers, ...HINTS, ...PRETENDING }));
      const answer = await ask(stream);
      const { error } = JSON.parse(answer.body);
      assert.deepEqual([answer.status, error.code, error.type], [status, 'response_malformed', type]);
      assert.match(error.message, /nothing authenticates the text, which is not shown/);
      assert.ok(answer.complete && !answer.body.includes('evil'));
      assertHints(answer);
      assertUnauthenticated(answer);
      assert.equal(answer.headers['privatemode-proxy-error'], 'response_malformed');
      assert.deepEqual([...gateway.counters.decryptFailures], []);
    });
  }
});

it('an informational response of status 101 becomes 502 upstream_reset', async (t) => {
  const { upstream, ask } = await gatewayFixture(t, {
    answers: 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n',
  });
  assertError(await ask(post()), 502, 'upstream_reset');
  assert.equal(upstream.requests.length, 1);
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
