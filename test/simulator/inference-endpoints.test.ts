/** What is to know of the simulated endpoints beside the shape of their answers, which inference-grammar.test.ts has. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import {
  askStream,
  askUnary,
  type InferenceServer,
  membersOf,
  startInference,
} from '../support/remote/inference-server.ts';
import { Attempt, call, goodHeaders, modelsHeaders, PLAIN } from '../support/remote/literal-client.ts';

describe('the endpoints of the simulator', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(async () => {
    assert.deepEqual(server.exchanges.violations(), []);
    await server.close();
  });

  for (const stream of [1, 'true']) {
    it(`streams for ${JSON.stringify(stream)} too, as the server reads it`, async () => {
      const members = { ...membersOf('chat', 'sim-2', 'hello', true), stream };
      const chunks = await askStream<{ usage: object }>(server, 'chat', members);
      assert.equal(chunks.pop()?.data, '[DONE]');
      assert.ok(chunks.every(({ data }) => data.usage !== undefined));
    });
  }

  it('encrypts object, created, model and choices, and leaves id and usage plain', async () => {
    const { answer } = await server.ask('chat', membersOf('chat', 'sim-1x0', 'hello', true));
    const [chunk] = answer.body.toString().split('\n\n');
    const members = JSON.parse(chunk!.replace('data: ', '')) as Record<string, unknown>;
    const sealed = Object.keys(members).filter((name) => /^[^:]+:[0-9a-f]{24}:/.test(String(members[name])));
    assert.deepEqual(sealed, ['object', 'created', 'model', 'choices']);
    assert.match(String(members['id']), /^chatcmpl-/);
    assert.equal(typeof members['usage'], 'object');
  });

  it('paces tokens as the model name says, one event at a time', async () => {
    const { answer } = await server.ask('chat', membersOf('chat', 'sim-6x25', 'hello', true));
    const tokens = answer.chunks.slice(1); // the role comes at once
    const took = tokens.at(-1)!.at - answer.chunks[0]!.at;
    assert.ok(took > 120 && took < 1500, `took ${took} ms`);
    assert.ok(answer.chunks.length >= 6, `${answer.chunks.length} chunks`);
  });

  it('a client that reads nothing stops the generation, without an end in memory', async () => {
    const client = new AbortController();
    const members = membersOf('chat', 'sim-1000000x0', 'x', true);
    const asked = server.ask(
      'chat',
      members,
      {},
      {
        signal: client.signal,
        onRequest: (request) => request.once('response', (response) => setImmediate(() => response.pause())),
      },
    );
    const written = (): number => server.exchanges.last()?.written ?? 0;
    let before = -1;
    for (let quiet = 0, looks = 0; quiet < 3 && looks < 100; looks++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      quiet = written() > 0 && written() === before ? quiet + 1 : 0;
      before = written();
    }
    assert.ok(before < 100_000, `${before} events were written to nobody`);
    client.abort();
    await asked;
    assert.notEqual((await server.finished()).closedEarlyAt, undefined);
  });

  it('echoes the last user message word by word', async () => {
    const text = '  zwei Wörter\n und 😀 mehr ';
    const messages = [
      { role: 'user', content: 'earlier' },
      { role: 'assistant', content: 'reply' },
      { role: 'user', content: [{ type: 'text', text }] },
    ];
    const all = await askStream<{ choices?: { delta?: { content?: string } }[] }>(server, 'chat', {
      ...membersOf('chat', 'sim-echo', '', true),
      messages,
    });
    const words = all.flatMap(({ data }) => data.choices?.[0]?.delta?.content ?? []);
    assert.equal(words.join(''), text);
    assert.ok(words.length > 5);
  });

  it('leaves type and usage plain, and has nothing to encrypt in message_stop', async () => {
    const { answer } = await server.ask('messages', membersOf('messages', 'sim-echo', 'two words', true));
    const text = answer.body.toString();
    assert.match(text, /event: message_stop\ndata: \{"type":"message_stop"\}\n\n$/);
    assert.match(text, /"usage":\{"output_tokens":2\}/);
    assert.doesNotMatch(text, /two words/);
  });

  it('answers an error in its own dialect', async () => {
    const members = membersOf('messages', 'sim-error-529', 'x', true);
    const answer = await askUnary<{ type: string; error: { type: string } }>(
      server,
      'messages',
      members,
      529,
    );
    assert.equal(answer.type, 'error');
    assert.equal(answer.error.type, 'overloaded_error');
  });

  it('answers for models of its own only where it is a rehearsal, with an encrypted 404 for others', async () => {
    const strict = await startInference({ anyName: false });
    try {
      for (const dialect of ['chat', 'completions', 'messages', 'embeddings'] as const) {
        for (const own of ['sim-3x0', 'sim-echo'])
          assert.equal((await strict.ask(dialect, membersOf(dialect, own, 'x', false))).answer.status, 200);
        const answer = await askUnary(strict, dialect, membersOf(dialect, 'gpt-5', 'x', false), 404);
        const error = { message: 'The model `gpt-5` does not exist.', type: 'NotFoundError' };
        assert.deepEqual(answer, { error: { ...error, param: 'model', code: 404 } });
      }
    } finally {
      await strict.close();
    }
  });

  it('unstructured answers an array whose first element describes the body, elements in index-text order', async () => {
    const attempt = new Attempt(server.secret);
    const content = Buffer.from(
      '--B\r\nContent-Disposition: form-data; name="files"\r\n\r\n%PDF\r\n--B--\r\n',
    );
    const { 'privatemode-target-model': _, ...headers } = goodHeaders(server.port, server.secret, 'm');
    const answer = await call({
      port: server.port,
      path: '/unstructured/general/v0/general?x=1',
      headers: { ...headers, 'content-type': 'multipart/form-data; boundary=B' },
      body: attempt.seal(content),
    });
    assert.equal(answer.status, 200, answer.body.toString());
    const elements = attempt.openValue(answer.body.toString(), PLAIN.nothing) as {
      text: string;
      metadata: object;
    }[];
    assert.equal(elements.length, 12);
    const digest = createHash('sha256').update(content).digest('hex');
    assert.equal(elements[0]?.text, `${content.length} bytes sha256:${digest}`);
    assert.deepEqual(elements[0]?.metadata, { content_type: 'multipart/form-data; boundary=B' });
  });

  it('no policy is checked for unstructured', async () => {
    const { 'privatemode-target-model': _, ...headers } = goodHeaders(server.port, server.secret, 'm');
    const answer = await call({
      port: server.port,
      path: '/unstructured/x',
      headers: { ...headers, 'privatemode-nvidia-ocsp-policy-mac': '0'.repeat(64) },
      body: new Attempt(server.secret).seal(''),
    });
    assert.equal(answer.status, 200);
  });

  describe('models', () => {
    const get = (path: string) => {
      const headers = modelsHeaders(server.port, server.secret);
      return call({ port: server.port, method: 'GET', path, headers });
    };

    it('lists models in clear', async () => {
      const { status, body } = await get('/v1/models');
      assert.equal(status, 200);
      const list = JSON.parse(body.toString()) as { object: string; data: { id: string; object: string }[] };
      assert.equal(list.object, 'list');
      assert.ok(list.data.some(({ id, object }) => id === 'sim-echo' && object === 'model'));
    });

    it('describes one model, and answers 404 for an unknown one', async () => {
      const found = await get('/v1/models/sim-200x20');
      assert.equal((JSON.parse(found.body.toString()) as { id: string }).id, 'sim-200x20');
      const missing = await get('/v1/models/gpt%2F9?x=1');
      assert.equal(missing.status, 404);
      assert.match(missing.body.toString(), /gpt\/9/);
      assert.equal((await get('/v1/models/%zz')).status, 404);
    });
  });
});
