/**
 * Every endpoint, through the whole program to the simulated service, and what the gateway answers itself.
 * How each path is read is test/api/endpoints.test.ts.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, describe, it } from 'node:test';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';

const USER = { role: 'user', content: `${CANARY} hello` };

describe('the gateway', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack();
  });
  after(() => stack.close());
  afterEach(() => {
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    assert.equal(stack.simulator.recorder.containing(CANARY).length, 0);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });

  const ask = (path: string, body: unknown, init: RequestInit = {}): Promise<Response> =>
    fetch(`${stack.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      ...init,
    });
  const seen = () => stack.simulator.exchanges.last();

  for (const [path, extra, end] of [
    ['/v1/chat/completions', { messages: [USER] }, /data: \[DONE\]\n\n$/],
    ['/v1/completions', { prompt: USER.content }, /data: \[DONE\]\n\n$/],
    ['/v1/messages', { messages: [USER], max_tokens: 9 }, /event: message_stop\ndata: .*\n\n$/],
  ] as const) {
    it(`answers POST ${path} whole or as a stream, and forwards only the documented parameters of its query`, async () => {
      const response = await ask(path, { model: 'sim-echo', ...extra });
      assert.ok((await response.text()).includes(USER.content));
      assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
      const streamed = await ask(`${path}?beta=true&a=%20`, { model: 'sim-echo', stream: true, ...extra });
      assert.equal(streamed.headers.get('cache-control'), 'no-cache');
      assert.match(await streamed.text(), end);
      assert.equal(seen()?.target, path === '/v1/messages' ? `${path}?beta=true` : path);
    });
  }

  it('answers POST /v1/embeddings without a stream even if the body says "stream": true', async () => {
    const body = { model: 'sim-embed', input: [CANARY, 'b'], stream: true };
    const response = await ask('/v1/embeddings', body);
    const { data } = (await response.json()) as { data: unknown[] };
    assert.deepEqual([response.status, data.length], [200, 2]);
  });

  it('answers POST /v1/audio/transcriptions with a stream or a whole body', async () => {
    const audio = Buffer.from(`${CANARY} is what the audio says`);
    for (const stream of [false, true]) {
      const form = new FormData();
      form.set('model', 'sim-whisper');
      form.set('stream', String(stream));
      form.set('file', new Blob([audio]), 'secret-name.wav');
      const response = await ask('/v1/audio/transcriptions', undefined, { body: form, headers: {} });
      const text = await response.text();
      assert.ok(text.includes(createHash('sha256').update(audio).digest('hex')), text);
      assert.equal(/data: \[DONE\]\n\n$/.test(text), stream);
    }
  });

  it('answers POST /unstructured/… with a body of any type, and forwards nothing of its query', async () => {
    const body = `${CANARY}, in any form`;
    const response = await ask('/unstructured/general/v0/general?x=1', undefined, {
      body,
      headers: { 'content-type': 'text/plain' },
    });
    const [title] = (await response.json()) as [{ text: string; metadata: unknown }];
    assert.match(title.text, new RegExp(createHash('sha256').update(body).digest('hex')));
    assert.deepEqual(title.metadata, { content_type: 'text/plain' });
    assert.equal(seen()?.target, '/unstructured/general/v0/general');
  });

  it('answers GET /v1/models and GET /v1/models/{id}, and forwards only the documented parameters', async () => {
    const list = await fetch(`${stack.url}/v1/models?limit=9&key=${CANARY}`);
    assert.equal(seen()?.target, '/v1/models?limit=9');
    assert.equal(((await list.json()) as { object: string }).object, 'list');
    assert.equal(list.headers.get('privatemode-proxy-secret-id'), null, 'nothing protected this');
    assert.equal((await fetch(`${stack.url}/models`)).status, 200);
    assert.equal(seen()?.target, '/v1/models');
    const one = await fetch(`${stack.url}/v1/models/sim-echo`);
    assert.equal(((await one.json()) as { id: string }).id, 'sim-echo');
    assert.equal((await fetch(`${stack.url}/v1/models/none`)).status, 404);
    assert.equal(seen()?.target, '/v1/models/none');
  });

  const local: [request: string, status: number, body: RegExp][] = [
    ['GET /', 200, /^privatemode-proxy v\d/],
    ['GET /api/hello', 200, /^ok\n$/],
    ['GET /healthz', 200, /^ok\n$/],
    ['GET /readyz', 204, /^$/],
    [
      'GET /v1',
      200,
      /^\{"name":"privatemode-proxy","version":"[^"]+","endpoints":\["POST \/v1\/chat\/completions",/,
    ],
    ['DELETE /v1/models', 405, /GET, HEAD/],
    ['POST /privatemode/v1/secret', 404, /no such endpoint/],
    ['POST /v1/responses', 400, /"message":"[^"]*\/v1\/chat\/completions/],
  ];
  it('answers by itself what the service does not get', async () => {
    const before = stack.simulator.counts['inference'];
    for (const [request, status, body] of local) {
      const [method = '', path = ''] = request.split(' ');
      const response = await fetch(`${stack.url}${path}`, { method });
      assert.equal(response.status, status, request);
      assert.match(await response.text(), body);
      assert.equal(response.headers.has('allow'), status === 405);
      assert.equal(response.headers.has('privatemode-proxy-error'), status >= 400);
      assert.equal(response.headers.get('x-content-type-options'), 'nosniff');
      assert.equal(response.headers.get('content-security-policy'), 'sandbox');
    }
    assert.equal(stack.simulator.counts['inference'], before);
  });
});
