/** Every endpoint, each through the whole program to the simulated service; and what is answered here. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, afterEach, before, describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { CANARY, get } from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
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

  const chats: [path: string, extra: object, text: (json: never) => string][] = [
    [
      '/v1/chat/completions',
      { messages: [USER] },
      (json: { choices: [{ message: { content: string } }] }) => json.choices[0].message.content,
    ],
    [
      '/v1/completions',
      { prompt: USER.content },
      (json: { choices: [{ text: string }] }) => json.choices[0].text,
    ],
    [
      '/v1/messages',
      { messages: [USER], max_tokens: 9 },
      (json: { content: [{ text: string }] }) => json.content[0].text,
    ],
  ];
  for (const [path, extra, text] of chats) {
    it(`answers POST ${path} with the hash of the manifest in a header`, async () => {
      const response = await ask(path, { model: 'sim-echo', ...extra });
      assert.equal(response.status, 200);
      assert.equal(text((await response.json()) as never).trim(), USER.content);
      assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
    });

    it(`streams POST ${path}, and forwards only the documented parameters of its query`, async () => {
      const response = await ask(`${path}?beta=true&a=%20`, { model: 'sim-echo', stream: true, ...extra });
      assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
      assert.equal(response.headers.get('cache-control'), 'no-cache');
      const stream = await response.text();
      const said = [...stream.matchAll(/"(?:content|text)":\s*"((?:[^"\\]|\\.)*)"/g)]
        .map(([, part]) => part)
        .join('');
      assert.match(said, /hello/);
      assert.match(
        stream,
        path === '/v1/messages' ? /event: message_stop\ndata: .*\n\n$/ : /data: \[DONE\]\n\n$/,
      );
      assert.equal(seen()?.target, path === '/v1/messages' ? `${path}?beta=true` : path);
    });
  }

  for (const [path, extra, text] of chats) {
    for (const spelled of [path.slice(3), `${path}/`]) {
      it(`handles POST ${spelled} as ${path}`, async () => {
        const response = await ask(spelled, { model: 'sim-echo', ...extra });
        assert.equal(response.status, 200);
        assert.equal(text((await response.json()) as never).trim(), USER.content);
        assert.equal(seen()?.target, path);
      });
    }
  }

  it('answers POST /v1/embeddings without a stream even if the body says "stream": true', async () => {
    const body = { model: 'sim-embed', input: [CANARY, 'b'], stream: true };
    const response = await ask('/v1/embeddings', body);
    const { data } = (await response.json()) as { data: unknown[] };
    assert.deepEqual([response.status, data.length], [200, 2]);
  });

  for (const stream of [false, true]) {
    it(`answers POST /v1/audio/transcriptions with a ${stream ? 'stream' : 'whole body'}`, async () => {
      const audio = Buffer.from(`${CANARY} is what the audio says`);
      const form = new FormData();
      form.set('model', 'sim-whisper');
      form.set('stream', String(stream));
      form.set('file', new Blob([audio]), 'secret-name.wav');
      const response = await ask('/v1/audio/transcriptions', undefined, { body: form, headers: {} });
      const text = await response.text();
      assert.equal(response.status, 200, text);
      const digest = createHash('sha256').update(audio).digest('hex');
      assert.ok(text.includes(digest), text);
      if (stream) assert.match(text, /data: \[DONE\]\n\n$/);
    });
  }

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

  it('answers HEAD without a body at every path that takes GET', async () => {
    for (const path of ['/v1/models', '/v1/models/sim-echo', '/', '/healthz', '/readyz', '/api/hello']) {
      const client = rawClient(Number(new URL(stack.url).port));
      client.send(get(path).replace('GET', 'HEAD').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
      await client.ended;
      assert.match(client.received(), /^HTTP\/1\.1 20[04] [\s\S]*\r\n\r\n$/, path);
    }
  });

  for (const { methods, path, optional } of ENDPOINTS) {
    if (optional !== undefined) continue;
    const concrete = path.replace('{id}', 'sim-echo').replace('*', 'general');
    const wrong = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'].filter(
      (method) => !methods.includes(method),
    );
    it(`answers ${wrong.join(', ')} ${path} with 405 and Allow, and forwards none of them`, async () => {
      const before = stack.simulator.counts['inference'];
      for (const method of wrong) {
        const response = await fetch(`${stack.url}${concrete}`, { method });
        assert.equal(response.status, 405, method);
        const allowed = methods.includes('GET') ? 'GET, HEAD' : 'POST';
        assert.equal(response.headers.get('allow'), allowed);
      }
      assert.equal(stack.simulator.counts['inference'], before);
    });
  }

  const local: [request: string, status: number, body: RegExp][] = [
    ['GET /', 200, /^privatemode-proxy v\d/],
    ['GET /api/hello', 200, /^ok\n$/],
    ['GET /healthz', 200, /^ok\n$/],
    ['GET /readyz', 204, /^$/],
    ['POST /healthz', 405, /GET, HEAD/],
    ['GET /favicon.ico', 404, /no such endpoint/],
    ['GET /health', 200, /^ok\n$/],
    [
      'GET /v1',
      200,
      /^\{"name":"privatemode-proxy","version":"[^"]+","endpoints":\["POST \/v1\/chat\/completions",/,
    ],
    ['GET /v1/', 200, /"POST \/v1\/messages\/count_tokens"\]\}\n$/],
    ['POST /v1', 405, /GET, HEAD/],
    ['GET /v2/models', 404, /no such endpoint/],
    ['GET /v1/files', 404, /no such endpoint/],
    ['POST /v1/images/generations', 404, /no such endpoint/],
    ['POST /privatemode/v1/secret', 404, /no such endpoint/],
    ['GET /unstructured', 404, /no such endpoint/],
    ['POST /v1/chat/completions/x', 404, /no such endpoint/],
    ['POST /V1/chat/completions', 404, /no such endpoint/],
    ['POST /v1/responses', 400, /"message":"[^"]*\/v1\/chat\/completions/],
    ['GET /v1/responses/resp_1', 404, /no such endpoint/],
    ['GET /v1/messages/count_tokens', 405, /^\{"type":"error","error":\{"type":"invalid_request_error"/],
  ];
  for (const [request, status, body] of local) {
    it(`answers ${request} itself, with ${status}`, async () => {
      const before = stack.simulator.counts['inference'];
      const [method = '', path = ''] = request.split(' ');
      const response = await fetch(`${stack.url}${path}`, { method });
      assert.equal(response.status, status);
      assert.match(await response.text(), body);
      assert.equal(response.headers.has('privatemode-proxy-error'), status >= 400);
      assert.equal(response.headers.get('x-content-type-options'), 'nosniff');
      assert.equal(response.headers.get('content-security-policy'), 'sandbox');
      assert.equal(stack.simulator.counts['inference'], before);
    });
  }

  it('answers a redirect of the service with 502 upstream_redirect, and does not follow it', async () => {
    const before = stack.simulator.counts['inference'] ?? 0;
    const response = await ask('/v1/chat/completions', {
      model: 'sim-echo+fault=redirect',
      messages: [USER],
    });
    assert.equal(response.status, 502);
    assert.match(await response.text(), /"code":"upstream_redirect"/);
    assert.equal(response.headers.get('location'), null);
    assert.equal(response.headers.get('x-should-retry'), 'false');
    assert.equal(stack.simulator.counts['inference'], before + 1);
  });
});
