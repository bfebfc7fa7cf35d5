/** Forwarding decrypted requests to a model server of one's own. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createModel } from '../../simulator/inference/model.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { type InferenceServer, membersOf, SALT, startInference } from '../support/remote/inference-server.ts';
import { Attempt, call, goodHeaders, modelsHeaders, PLAIN } from '../support/remote/literal-client.ts';

interface Received {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A model server that answers as told, and the simulator in front of it. */
async function startBoth(
  t: TestContext,
  answer: (response: ServerResponse, received: Received) => void,
): Promise<{ server: InferenceServer; received: Received[]; closed: Promise<void>[] }> {
  const received: Received[] = [];
  const closed: Promise<void>[] = [];
  const listener: RequestListener = async (request, response) => {
    closed.push(once(response, 'close').then(() => {}));
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    const { method = '', url = '', headers } = request;
    received.push({ method, url, headers, body });
    answer(response, received.at(-1)!);
  };
  const backend = createServer(listener).listen(0, '127.0.0.1');
  await once(backend, 'listening');
  const { port } = backend.address() as AddressInfo;
  const server = await startInference({ backend: `http://127.0.0.1:${port}` });
  t.after(async () => {
    await server.close();
    backend.closeAllConnections();
    await new Promise((resolve) => backend.close(resolve));
  });
  return { server, received, closed };
}

const json = (response: ServerResponse, status: number, value: unknown): void => {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
};

describe('a backend', () => {
  it('gets the decrypted request and no header of the client; its answer is encrypted', async (t) => {
    const { server, received } = await startBoth(t, (response) =>
      json(response, 200, {
        id: 'b1',
        choices: [{ message: { content: 'two words', reasoning: 'why' } }],
        usage: {},
      }),
    );
    const members = membersOf('chat', 'llama+fault=informational:1', 'hello', false);
    const { attempt, answer } = await server.ask('chat', members, { 'anthropic-beta': 'x' });
    assert.equal(answer.status, 200);
    assert.doesNotMatch(answer.body.toString(), /two words/);
    const opened = attempt.openValue(answer.body.toString(), PLAIN.answer) as {
      choices: { message: unknown }[];
    };
    assert.deepEqual(opened.choices[0]?.message, {
      content: 'two words',
      reasoning: 'why',
      reasoning_content: 'why',
    });
    assert.equal(received.length, 1);
    assert.equal(received[0]?.url, '/v1/chat/completions');
    assert.deepEqual(JSON.parse(received[0]?.body ?? ''), { ...members, model: 'llama' });
    assert.deepEqual(Object.keys(received[0]?.headers ?? {}).sort(), [
      'connection',
      'content-length',
      'content-type',
      'host',
    ]);
  });

  it('is asked for usage in every chunk of a stream, all other bytes untouched', async (t) => {
    const { server, received } = await startBoth(t, (response) => json(response, 200, {}));
    const attempt = new Attempt(server.secret);
    const sealed = {
      salt: attempt.seal(JSON.stringify(SALT)),
      seed: attempt.seal('12345678901234567890123'),
    };
    const body = `{"cache_salt":${sealed.salt},"model":"m", "stream":true,"seed":${sealed.seed},"stream_options":{"x":1}}`;
    await server.send('chat', body);
    assert.equal(
      received[0]?.body,
      `{"cache_salt":"${SALT}","model":"m", "stream":true,"seed":12345678901234567890123,` +
        '"stream_options":{"x":1,"include_usage":true,"continuous_usage_stats":true}}',
    );
    await server.ask('completions', membersOf('completions', 'm', 'x', true));
    assert.match(
      String(received[1]?.body),
      /^\{"stream_options":\{"include_usage":true,"continuous_usage_stats":true\},"model"/,
    );
    await server.ask('messages', membersOf('messages', 'm', 'x', true));
    assert.doesNotMatch(String(received[2]?.body), /stream_options/);
  });

  it('streams: events are encrypted one by one as they come, however they are cut', async (t) => {
    const { server } = await startBoth(t, async (response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      const text =
        ': note\n\ndata: {"id":"a","choices":[{"index":0,"delta":{"content":"ü"}}]}\r\n\r\nevent: x\ndata:{"id":"b"}\n\ndata: [DONE]\n\n';
      for (const byte of Buffer.from(text)) {
        response.write(Buffer.of(byte));
        await new Promise(setImmediate);
      }
      response.end();
    });
    const { attempt, answer } = await server.ask('chat', membersOf('chat', 'm', 'x', true));
    assert.deepEqual(attempt.openEvents(answer.body.toString(), PLAIN.answer), [
      { data: { id: 'a', choices: [{ index: 0, delta: { content: 'ü' } }] } },
      { event: 'x', data: { id: 'b' } },
      { data: '[DONE]' },
    ]);
  });

  it('may answer an error, which is encrypted with its status; a text error cannot be', async (t) => {
    const { server } = await startBoth(t, (response, { body }) => {
      if (body.includes('"text"')) response.writeHead(503).end('overloaded');
      else json(response, 422, { error: { message: 'no', code: 422 } });
    });
    const { attempt, answer } = await server.ask('chat', membersOf('chat', 'm', 'x', true));
    assert.equal(answer.status, 422);
    assert.deepEqual(attempt.openValue(answer.body.toString(), PLAIN.answer), {
      error: { message: 'no', code: 422 },
    });
    const text = await server.ask('chat', membersOf('chat', 'text', 'x', true));
    assert.equal(text.answer.status, 500);
    assert.equal(text.answer.headers['privatemode-encrypted'], 'false');
    assert.doesNotMatch(text.answer.body.toString(), /overloaded/);
  });

  it('that dies in mid-stream takes the connection with it', async (t) => {
    const { server } = await startBoth(t, (response) => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.write('data: {"id":"a"}\n\n', () => setTimeout(() => response.destroy(), 20));
    });
    const { answer } = await server.ask('chat', membersOf('chat', 'm', 'x', true));
    assert.match(String(answer.broken), /ECONNRESET/);
    assert.notEqual((await server.finished()).failure, '');
  });

  it('that cannot be reached is a 502 in clear', async () => {
    const server = await startInference({ backend: 'http://127.0.0.1:1' });
    try {
      const { answer } = await server.ask('chat', membersOf('chat', 'm', 'x', true));
      assert.equal(answer.status, 502);
      assert.equal(answer.headers['privatemode-encrypted'], 'false');
    } finally {
      await server.close();
    }
  });

  it('is left when the client leaves, before its answer and in the middle of it', async (t) => {
    const { server, closed, received } = await startBoth(t, (response, { body }) => {
      if (!body.includes('"late"'))
        response.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: {"id":"a"}\n\n');
    });
    for (const model of ['late', 'middle']) {
      const before = received.length;
      const client = new AbortController();
      const asked = server.ask(
        'chat',
        membersOf('chat', model, 'x', true),
        {},
        {
          signal: client.signal,
          onChunk: () => client.abort(),
        },
      );
      await eventually('the backend to be asked', () => received.length > before);
      if (model === 'late') client.abort();
      await asked;
      await closed.at(-1);
      await server.finished();
    }
    assert.equal(received.length, 2);
  });

  it('gets forms rebuilt, with usage forced for streams', async (t) => {
    const { server, received } = await startBoth(t, (response) => json(response, 200, { text: 'x' }));
    const attempt = new Attempt(server.secret);
    const answer = await call({
      port: server.port,
      path: '/v1/audio/transcriptions',
      headers: {
        ...goodHeaders(server.port, server.secret, 'whisper'),
        'content-type': 'multipart/form-data; boundary=BOUNDARY',
      },
      body: attempt.sealForm({ model: 'whisper', language: 'en', stream: 'true' }, Buffer.from('RIFF')),
    });
    assert.deepEqual(attempt.openValue(answer.body.toString(), PLAIN.transcriptionAnswer), { text: 'x' });
    const { headers, body, url } = received[0]!;
    assert.equal(url, '/v1/audio/transcriptions');
    const form = await new Response(body, {
      headers: { 'content-type': String(headers['content-type']) },
    }).formData();
    assert.equal(form.get('language'), 'en');
    assert.equal(form.get('stream_include_usage'), 'true');
    assert.equal(form.get('stream_continuous_usage_stats'), 'true');
    const file = form.get('file');
    assert.ok(file instanceof File);
    assert.equal(await file.text(), 'RIFF');
  });

  it('lists its own models', async (t) => {
    const { server, received } = await startBoth(t, (response) =>
      json(response, 200, { data: [{ id: 'llama' }] }),
    );
    const headers = modelsHeaders(server.port, server.secret);
    const { body } = await call({ port: server.port, method: 'GET', path: '/v1/models?a=b', headers });
    assert.deepEqual(JSON.parse(body.toString()), { data: [{ id: 'llama' }] });
    assert.equal(received[0]?.url, '/v1/models?a=b');
  });
});

describe('scripted transcripts', () => {
  const directory = temporaryDirectory('transcripts-');
  const path = join(directory, 'transcripts.json');

  it('replays events with their delays and names, and whole answers', async () => {
    writeFileSync(
      path,
      JSON.stringify({
        script: {
          events: [
            { data: { id: 'a', choices: [{ delta: { reasoning: 'hm' }, index: 0 }] } },
            { delayMs: 60, event: 'odd', data: { id: 'b', choices: [] } },
            { data: '[DONE]' },
          ],
          unary: { status: 418, body: { id: 'c', choices: [] } },
        },
      }),
    );
    const server = await startInference({ transcripts: path });
    try {
      const started = performance.now();
      const { attempt, answer } = await server.ask('chat', membersOf('chat', 'script', 'x', true));
      assert.ok(performance.now() - started >= 59);
      assert.deepEqual(attempt.openEvents(answer.body.toString(), PLAIN.answer), [
        { data: { id: 'a', choices: [{ delta: { reasoning: 'hm', reasoning_content: 'hm' }, index: 0 }] } },
        { event: 'odd', data: { id: 'b', choices: [] } },
        { data: '[DONE]' },
      ]);
      const whole = await server.ask('chat', membersOf('chat', 'script', 'x', false));
      assert.equal(whole.answer.status, 418);
      assert.deepEqual(whole.attempt.openValue(whole.answer.body.toString(), PLAIN.answer), {
        id: 'c',
        choices: [],
      });
      const other = await server.ask('chat', membersOf('chat', 'sim-1x0', 'x', false));
      assert.equal(other.answer.status, 200);
    } finally {
      await server.close();
    }
  });

  it('answers by the number of tools that have answered', async () => {
    const turns = ['a', 'b'].map((id) => ({ unary: { body: { id, choices: [] } } }));
    writeFileSync(path, JSON.stringify({ script: { turns } }));
    const server = await startInference({ transcripts: path });
    try {
      const tool = { role: 'tool', tool_call_id: 'c', content: 'x' };
      for (const [tools, id] of [
        [0, 'a'],
        [1, 'b'],
        [2, 'b'],
      ] as const) {
        const messages = [{ role: 'user', content: 'x' }, ...Array(tools).fill(tool)];
        const asked = { ...membersOf('chat', 'script', 'x', false), messages };
        const { attempt, answer } = await server.ask('chat', asked);
        assert.equal((attempt.openValue(answer.body.toString(), PLAIN.answer) as { id: string }).id, id);
      }
    } finally {
      await server.close();
    }
  });

  for (const [name, content] of Object.entries({
    'no JSON': '{',
    'no map': '[]',
    'events that are no list': '{"m":{"events":1}}',
    'an event without data': '{"m":{"events":[{"delayMs":1}]}}',
    'a whole answer without a body': '{"m":{"unary":{}}}',
  })) {
    it(`refuses at the start a file with ${name}`, () => {
      writeFileSync(path, content);
      assert.throws(
        () => createModel({ transcripts: path }, Date.now),
        (error: unknown) => error instanceof PrivatemodeError && error.code === 'config_invalid',
      );
    });
  }
});
