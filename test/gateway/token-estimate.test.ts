/**
 * POST /v1/messages/count_tokens: an estimate that is made here, from bodies judged as strictly as those that
 * leave.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { tokenEstimateReader } from '../../lib/pipeline/token-estimate.ts';
import { fakeSession } from '../support/doors/gateway.ts';
import { assertError, CANARY, chatBody, gatewayFixture, post } from '../support/doors/gateway-fixture.ts';
import { standing } from '../support/remote/standing.ts';

const PATH = '/v1/messages/count_tokens';

const estimateOf = async (body: string): Promise<number> =>
  (await tokenEstimateReader(Buffer.from(body), {})).tokens;

const withMember = (name: string, value: string): string => `{"model":"m","${name}":${value}}`;
const image = (source: object): string => JSON.stringify([{ type: 'image', source }]);

// Tokens: bytes of all strings ÷ 3.5, rounded up; 1600 per image or document.
const rows: [name: string, body: string, tokens: number][] = [
  ['a body without text', '{"model":"m"}', 0],
  ['7 bytes of text', withMember('system', '"1234567"'), 2],
  ['8 bytes of text', withMember('system', '"12345678"'), 3],
  ['members of one byte each', '{"model":"m","system":"a","messages":["b"],"tools":["c"]}', 1],
  ['members that do not count', '{"model":"m","stop_sequences":["1234567"]}', 0],
  // name + get + input_schema + type + object: 29
  ['keys and values', withMember('tools', '[{"name":"get","input_schema":{"type":"object"}}]'), 9],
  ['numbers and literals, which do not count', withMember('messages', '[1234567, true, null, 1e99]'), 0],
  ['14 bytes of UTF-8 in 7 characters', withMember('system', '"äöüßä\\u00f6\\u00fc"'), 4],
  ['a surrogate pair, which is 4 bytes, and 3 digits', withMember('system', '"\\ud83d\\ude00123"'), 2],
  // type + image + source + type + base64 + media_type + data: 39 bytes, 12 tokens
  [
    'an image, which is 1600 whatever its size, and the words around it',
    withMember('messages', image({ data: 'A'.repeat(70_000), media_type: '', type: 'base64' })),
    1612,
  ],
  // type + image + source + type + url + url + 7 bytes: 33
  ['an image by URL', withMember('messages', image({ type: 'url', url: 'https:/' })), 1610],
  // type + image + source + type + text + data: 27 bytes of words, 70 000 of text
  [
    'a document of text, which counts as text',
    withMember('messages', image({ type: 'text', data: 'A'.repeat(70_000) })),
    20_008,
  ],
];
it('the estimate of tokens is that of the strings in the members that count', async () => {
  for (const [name, body, tokens] of rows) assert.equal(await estimateOf(body), tokens, name);
});

describe('POST /v1/messages/count_tokens', { concurrency: true, timeout: 600_000 }, () => {
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: `${CANARY} hello` }] });

  it('gives a number of tokens, marked as an estimate, without attesting or asking the service', async (t) => {
    const session = fakeSession({
      standing: () => standing('rejected'),
      acquire: () => Promise.reject(new Error('no')),
    });
    const { upstream, gateway, ask } = await gatewayFixture(t, { session });
    for (const path of [PATH, '/messages/count_tokens', `${PATH}?beta=true`]) {
      const { status, headers, body: text } = await ask(post(body, { path }));
      assert.equal(status, 200);
      assert.match(text, /^\{"input_tokens":[1-9]\d*\}$/);
      assert.equal(headers['privatemode-proxy-estimate'], 'true');
    }
    assert.equal(upstream.connections.total, 0);
    assert.ok(!gateway.logLines.join('').includes(CANARY));
  });

  it('refuses what could not be sent, in the form of the API', async (t) => {
    const { upstream, ask } = await gatewayFixture(t, { settings: { maxBodyBytes: 1024 } });
    for (const [sent, status, code, type] of [
      ['{"model":"m","":1}', 400, 'unsupported_member_name', 'invalid_request_error'],
      ['{"messages":[]}', 400, 'missing_model', 'invalid_request_error'],
      [chatBody({ x: 'x'.repeat(2000) }), 413, 'body_too_large', 'request_too_large'],
    ] as const) {
      const answer = await ask(post(sent, { path: PATH }));
      assertError(answer, status, code);
      const { error, request_id } = JSON.parse(answer.body);
      assert.deepEqual([error.type, answer.headers['request-id']], [type, request_id]);
    }
    assert.equal(upstream.connections.total, 0);
  });
});
