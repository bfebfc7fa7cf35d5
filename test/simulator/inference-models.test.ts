/**
 * Who answers a decrypted request in the simulator: its own models, a script, or a model server of one's own.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import type { ModelOptions } from '../../simulator/context.ts';
import { createModel } from '../../simulator/inference/model.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import {
  askStream,
  askUnary,
  type InferenceServer,
  membersOf,
  SALT,
  startInference,
} from '../support/remote/inference-server.ts';
import { Attempt, call, goodHeaders, modelsHeaders, PLAIN } from '../support/remote/literal-client.ts';

async function inference(t: TestContext, options: ModelOptions = {}): Promise<InferenceServer> {
  const server = await startInference(options);
  t.after(() => server.close());
  return server;
}

describe('a simulated model', () => {
  for (const [dialect, limit, reason] of [
    ['chat', { max_completion_tokens: 3, max_tokens: 64 }, 'length'],
    ['completions', { max_tokens: 3 }, 'length'],
    ['messages', { max_tokens: 3 }, 'max_tokens'],
  ] as const) {
    it(`writes no more tokens than a request to ${dialect} allows, and says that this ended it`, async (t) => {
      const server = await inference(t);
      for (const stream of [true, false]) {
        for (const [model, words, finish] of [
          ['sim-4x0', 't0 t1 t2', reason],
          ['sim-3x0', 't0 t1 t2', dialect === 'messages' ? 'end_turn' : 'stop'],
        ] as const) {
          const members = { ...membersOf(dialect, model, 'x', stream), ...limit };
          const text = JSON.stringify(
            stream ? await askStream(server, dialect, members) : await askUnary(server, dialect, members),
          );
          const said = [...text.matchAll(/"(?:content|text)":"([^"]*)"/g)].map(([, word]) => word).join('');
          const [, ended] = /"(?:finish|stop)_reason":"(\w+)"/.exec(text) ?? [];
          assert.deepEqual([said, ended], [words, finish], text);
        }
      }
    });
  }

  it('refuses a message without max_tokens with status 400', async (t) => {
    const server = await inference(t, { anyName: false });
    const { max_tokens: _, ...members } = membersOf('messages', 'sim-echo', 'x', false);
    const { error } = await askUnary<{ error: { message: string } }>(server, 'messages', members, 400);
    assert.match(error.message, /max_tokens: Field required/);
  });

  it('refuses a chat with an earlier tool call whose arguments are not a JSON object with status 400', async (t) => {
    const server = await inference(t);
    for (const [text, status] of [
      ['{"a":1}}', 400],
      ['"a"', 400],
      ['{"a":1}', 200],
      ['', 200],
    ] as const) {
      const call = { id: 'c', type: 'function', function: { name: 'f', arguments: text } };
      const messages = [
        { role: 'assistant', tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c', content: 'x' },
      ];
      await askUnary(server, 'chat', { ...membersOf('chat', 'sim-echo', 'x', false), messages }, status);
    }
  });
});

interface Received {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** Resolves when the connection has closed, whoever did it. */
  readonly closed: Promise<unknown>;
}

/** A model server that answers as told, and the simulator in front of it. */
async function startBoth(
  t: TestContext,
  answer: (response: ServerResponse) => void,
): Promise<{ server: InferenceServer; received: Received[] }> {
  const received: Received[] = [];
  const backend = createServer(async (request, response) => {
    const closed = once(response, 'close');
    const body = Buffer.concat(await request.toArray()).toString();
    const { url = '', headers } = request;
    received.push({ url, headers: headers as Record<string, string>, body, closed });
    answer(response);
  }).listen(0, '127.0.0.1');
  await once(backend, 'listening');
  t.after(() => {
    backend.closeAllConnections();
    backend.close();
  });
  const { port } = backend.address() as AddressInfo;
  return { server: await inference(t, { backend: `http://127.0.0.1:${port}` }), received };
}

const answerJson = (response: ServerResponse): void =>
  void response.writeHead(200, { 'Content-Type': 'application/json' }).end('{"text":"x"}');

describe('a model server behind the simulator', () => {
  it('gets the decrypted request without headers of the client, and its model name without faults', async (t) => {
    const { server, received } = await startBoth(t, answerJson);
    const members = membersOf('chat', 'llama+fault=informational:1', 'hello', false);
    await server.ask('chat', members, { 'anthropic-beta': 'x' });
    const headers = modelsHeaders(server.port, server.secret);
    await call({ port: server.port, method: 'GET', path: '/v1/models?a=b', headers });
    assert.deepEqual(
      received.map(({ url }) => url),
      ['/v1/chat/completions', '/v1/models?a=b'],
    );
    assert.deepEqual(JSON.parse(received[0]!.body), { ...members, model: 'llama' });
    assert.deepEqual(Object.keys(received[0]!.headers).sort(), [
      'connection',
      'content-length',
      'content-type',
      'host',
    ]);
  });

  it('is asked for usage in every chunk of a stream, in the style of each endpoint, all other bytes untouched', async (t) => {
    const { server, received } = await startBoth(t, answerJson);
    const { port, secret } = server;
    const attempt = new Attempt(secret);
    const [salt, seed] = [attempt.seal(JSON.stringify(SALT)), attempt.seal('12345678901234567890123')];
    await server.send(
      'chat',
      `{"cache_salt":${salt},"model":"m", "stream":true,"seed":${seed},"stream_options":{"x":1}}`,
    );
    await server.ask('completions', membersOf('completions', 'm', 'x', true));
    await server.ask('messages', membersOf('messages', 'm', 'x', true));
    const [chat, completion, message] = received.map(({ body }) => body);
    assert.equal(
      chat,
      `{"cache_salt":"${SALT}","model":"m", "stream":true,"seed":12345678901234567890123,` +
        '"stream_options":{"x":1,"include_usage":true,"continuous_usage_stats":true}}',
    );
    assert.match(
      completion ?? '',
      /^\{"stream_options":\{"include_usage":true,"continuous_usage_stats":true\},"model"/,
    );
    assert.doesNotMatch(message ?? '', /stream_options/);

    const fields = { model: 'whisper', language: 'en', stream: 'true' };
    await call({
      port,
      path: '/v1/audio/transcriptions',
      headers: {
        ...goodHeaders(port, secret, 'whisper'),
        'content-type': 'multipart/form-data; boundary=BOUNDARY',
      },
      body: new Attempt(secret).sealForm(fields, Buffer.from('RIFF')),
    });
    const { body, headers } = received.at(-1)!;
    const form = await new Response(body, { headers }).formData();
    const { file, ...values } = Object.fromEntries(form);
    assert.deepEqual(values, {
      ...fields,
      stream_include_usage: 'true',
      stream_continuous_usage_stats: 'true',
    });
    assert.equal(await (file as File).text(), 'RIFF');
  });

  it('becomes a bare 500 in clear if its answer is no JSON, and a bare 502 if it cannot be reached', async (t) => {
    const { server } = await startBoth(t, (response) => response.writeHead(503).end('overloaded'));
    const nowhere = await inference(t, { backend: 'http://127.0.0.1:1' });
    for (const [where, status] of [
      [server, 500],
      [nowhere, 502],
    ] as const) {
      const { answer } = await where.ask('chat', membersOf('chat', 'm', 'x', true));
      assert.deepEqual([answer.status, answer.headers['privatemode-encrypted']], [status, 'false']);
      assert.doesNotMatch(answer.body.toString(), /overloaded/);
    }
  });

  it('breaks the connection of the client if it dies in the middle of a stream', async (t) => {
    const { server } = await startBoth(t, (response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.write('data: {"id":"a"}\n\n', () => setTimeout(() => response.destroy(), 20));
    });
    const { answer } = await server.ask('chat', membersOf('chat', 'm', 'x', true));
    assert.match(String(answer.broken), /ECONNRESET/);
    assert.notEqual((await server.finished()).failure, '');
  });

  for (const [when, begins] of [
    ['before its answer', false],
    ['in the middle of its answer', true],
  ] as const) {
    it(`loses its connection when the client leaves ${when}`, async (t) => {
      const { server, received } = await startBoth(t, (response) => {
        if (begins)
          response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: {"id":"a"}\n\n');
      });
      const client = new AbortController();
      const leave = { signal: client.signal, onChunk: () => client.abort() };
      const asked = server.ask('chat', membersOf('chat', 'm', 'x', true), {}, leave);
      await eventually('the model server to be asked', () => received.length > 0);
      if (!begins) client.abort();
      await asked;
      await received[0]?.closed;
    });
  }
});

describe('a file of scripted answers for the simulator', () => {
  const path = join(temporaryDirectory('transcripts-'), 'transcripts.json');

  it('is replayed with delays, event names and statuses, one turn per tool result, and only for its models', async (t) => {
    const events = [
      { data: { id: 'a', choices: [{ delta: { reasoning: 'hm', reasoning_content: '' }, index: 0 }] } },
      { delayMs: 60, event: 'odd', data: { id: 'b', choices: [] } },
      { data: '[DONE]' },
    ];
    const second = { unary: { status: 418, body: { id: 'c', choices: [] } } };
    writeFileSync(path, JSON.stringify({ script: { turns: [{ events }, second] } }));
    const server = await inference(t, { transcripts: path });
    const started = performance.now();
    const { attempt, answer } = await server.ask('chat', membersOf('chat', 'script', 'x', true));
    assert.ok(performance.now() - started >= 59, 'the delay of the second event');
    assert.deepEqual(attempt.openEvents(answer.body.toString(), PLAIN.answer), [
      { data: { id: 'a', choices: [{ delta: { reasoning: 'hm', reasoning_content: 'hm' }, index: 0 }] } },
      { event: 'odd', data: { id: 'b', choices: [] } },
      { data: '[DONE]' },
    ]);
    for (const answered of [1, 2]) {
      const tool = { role: 'tool', tool_call_id: 'c', content: 'x' };
      const messages = [{ role: 'user', content: 'x' }, ...Array(answered).fill(tool)];
      const whole = await server.ask('chat', { ...membersOf('chat', 'script', 'x', false), messages });
      assert.equal(whole.answer.status, 418);
      const body = whole.attempt.openValue(whole.answer.body.toString(), PLAIN.answer);
      assert.deepEqual(body, { id: 'c', choices: [] });
    }
    const result = { type: 'tool_result', tool_use_id: 'c', content: 'x' };
    const messages = [{ role: 'user', content: [result] }];
    const inMessage = await server.ask('messages', {
      ...membersOf('messages', 'script', 'x', false),
      messages,
    });
    assert.equal(inMessage.answer.status, 418, 'a result in the style of Anthropic');
    const other = await server.ask('chat', membersOf('chat', 'sim-1x0', 'x', false));
    assert.equal(other.answer.status, 200);
  });

  for (const [name, content] of Object.entries({
    'no JSON': '{',
    'events that are no list': '{"m":{"events":1}}',
    'a whole answer without a body': '{"m":{"unary":{}}}',
  })) {
    it(`is refused at the start if it holds ${name}`, () => {
      writeFileSync(path, content);
      assert.throws(() => createModel({ transcripts: path }, Date.now), { code: 'config_invalid' });
    });
  }
});
