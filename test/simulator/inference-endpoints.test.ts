/** The endpoints beside the dialects of conversation: embeddings, transcriptions, unstructured, models. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { vectorOf } from '../../simulator/inference/models/embeddings.ts';
import { askUnary, type InferenceServer, startInference } from '../support/inference-server.ts';
import { Attempt, call, goodHeaders, modelsHeaders, PLAIN } from '../support/literal-client.ts';

interface Chunk {
  choices: { delta: { content: string }; finish_reason: string | null }[];
  usage: { prompt_tokens: number };
}

describe('the other endpoints of the simulator', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(async () => {
    assert.deepEqual(server.exchanges.violations(), []);
    await server.close();
  });

  describe('embeddings', () => {
    interface Embeddings {
      data: { index: number; embedding: number[] | string }[];
    }
    it('gives each input its own deterministic unit vector', async () => {
      const members = { model: 'sim-embed', input: ['a', 'b', 'a'], dimensions: 8 };
      const { data } = await askUnary<Embeddings>(server, 'embeddings', members);
      assert.deepEqual(data[0]?.embedding, [...vectorOf('a', 8)]);
      assert.deepEqual(data[2]?.embedding, data[0]?.embedding);
      assert.notDeepEqual(data[1]?.embedding, data[0]?.embedding);
      assert.ok(Math.abs(Math.hypot(...((data[0]?.embedding ?? []) as number[])) - 1) < 1e-6);
    });

    it('encodes as base64 of little-endian float32 values', async () => {
      const members = { model: 'sim-embed', input: 'a', encoding_format: 'base64' };
      const { data } = await askUnary<Embeddings>(server, 'embeddings', members);
      const bytes = Buffer.from(String(data[0]?.embedding), 'base64');
      const values = Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(index * 4));
      assert.deepEqual(values, [...vectorOf('a', 16)]);
    });
  });

  describe('transcriptions', () => {
    const file = Buffer.from('RIFF\r\n--BOUNDARY-no\0\xff', 'latin1');
    const digest = createHash('sha256').update(file).digest('hex');

    async function transcribe(fields: Record<string, string>) {
      const attempt = new Attempt(server.secret);
      const answer = await call({
        port: server.port,
        path: '/v1/audio/transcriptions',
        headers: {
          ...goodHeaders(server.port, server.secret, fields['model']),
          'content-type': 'multipart/form-data; boundary=BOUNDARY',
        },
        body: attempt.sealForm(fields, file),
      });
      return { attempt, answer, text: answer.body.toString() };
    }

    it('describes the form that arrived', async () => {
      const { attempt, answer, text } = await transcribe({
        model: 'sim-whisper',
        language: 'de',
        prompt: '',
      });
      assert.equal(answer.status, 200, text);
      const opened = attempt.openValue(text, PLAIN.transcriptionAnswer) as { text: string };
      assert.equal(
        opened.text,
        `language=de model=sim-whisper prompt= file=${file.length} bytes sha256:${digest}`,
      );
    });

    it('knows verbose_json', async () => {
      const { attempt, text } = await transcribe({ model: 'm', response_format: 'verbose_json' });
      const opened = attempt.openValue(text, PLAIN.transcriptionAnswer) as {
        segments: { text: string }[];
        duration: string;
      };
      assert.equal(opened.duration, '1.0');
      assert.match(String(opened.segments[0]?.text), new RegExp(digest));
    });

    it('streams words, a finish and [DONE], with usage in every chunk', async () => {
      const { attempt, text } = await transcribe({ model: 'm', stream: 'true' });
      const all = attempt.openEvents(text, PLAIN.transcriptionAnswer) as { data: Chunk }[];
      assert.deepEqual(all.pop()?.data, '[DONE]');
      const words = all.map(({ data }) => data.choices[0]?.delta?.content ?? '').join('');
      assert.equal(words, `model=m stream=true file=${file.length} bytes sha256:${digest}`);
      assert.equal(all.at(-2)?.data.choices[0]?.finish_reason, 'stop');
      assert.ok(all.every(({ data }) => data.usage.prompt_tokens === 1));
    });

    it('fails for formats that are not JSON: they cannot be encrypted', async () => {
      const { answer } = await transcribe({ model: 'm', response_format: 'srt' });
      assert.equal(answer.status, 500);
      assert.equal(answer.headers['privatemode-encrypted'], 'false');
    });
  });

  describe('unstructured', () => {
    it('answers an array whose first element describes the body, elements in index-text order', async () => {
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
