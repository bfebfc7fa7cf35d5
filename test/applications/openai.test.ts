/**
 * What an application does with OpenAI's own client, through proxy and simulator: the same table for each
 * major.
 */
import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { vectorOf } from '../../simulator/inference/models/embeddings.ts';
import { CLIENT } from '../support/doors/library-door.ts';
import { startStack } from '../support/doors/stack.ts';
import { describeMajors } from './majors.ts';
import { CANARY, CHAT_CASES, MESSAGES, type Scene } from './openai-chat.ts';
import { all, OPENAI_CLIENTS, type OpenAIClass } from './versions.ts';

/** Texts of 32-bit floats lose nothing in base64, and are printed exactly in JSON. */
const vectors = (...texts: string[]): number[][] => texts.map((text) => [...vectorOf(text, 16)]);

const CASES: typeof CHAT_CASES = {
  ...CHAT_CASES,

  async 'has a recording transcribed'({ client, Client, stack }) {
    const bytes = randomBytes(700_000);
    const file = await Client.toFile(bytes, 'canary-openai-5d1e.wav', { type: 'audio/wav' });
    const { text } = await client.audio.transcriptions.create({ model: 'sim-echo', file, language: 'en' });
    assert.ok(text.includes(`file=${bytes.length} bytes sha256:${hash('sha256', bytes)}`), text);
    assert.ok(text.includes('language=en'), text);
    assert.equal(stack.simulator.recorder.containing(bytes.subarray(1000, 1040)).length, 0);
  },

  async 'has a recording transcribed with its segments'({ client, Client }) {
    const answer = await client.audio.transcriptions.create({
      model: 'sim-echo',
      file: await Client.toFile(Buffer.from('some sound'), 'a.wav'),
      response_format: 'verbose_json',
      timestamp_granularities: ['segment'],
    });
    assert.equal(answer.segments?.length, 1);
    assert.equal(Number(answer.duration), 1);
  },

  async 'has a recording transcribed in a stream'({ client, Client }) {
    const bytes = Buffer.from('some sound');
    const stream = await client.audio.transcriptions.create({
      model: 'sim-echo',
      file: await Client.toFile(bytes, 'a.wav'),
      stream: true,
    });
    // The service streams transcripts in the shape of a chat, not in that of the client's types.
    const events = (await all(stream)) as unknown as {
      choices: { delta: { content: string } }[];
    }[];
    const text = events.flatMap(({ choices }) => choices.map(({ delta }) => delta.content)).join('');
    assert.ok(text.includes(hash('sha256', bytes)), text);
    assert.ok(events.length > 2);
  },

  async 'gets unsupported_response_format for a transcript as srt, and repeated_form_field for a repeated field'({
    client,
    Client,
  }) {
    const file = await Client.toFile(Buffer.from('some sound'), 'a.wav');
    const base = { model: 'sim-echo', file };
    const asked = {
      unsupported_response_format: { ...base, response_format: 'srt' as const },
      repeated_form_field: { ...base, timestamp_granularities: ['word' as const, 'segment' as const] },
    };
    for (const [code, request] of Object.entries(asked)) {
      await assert.rejects(client.audio.transcriptions.create(request), (error) => {
        assert.ok(error instanceof Client.BadRequestError, String(error));
        assert.equal(error.code, code);
        return true;
      });
    }
  },

  async 'gets embeddings in the encoding that it asks for by default'({ client }) {
    const { data } = await client.embeddings.create({ model: 'sim-embed', input: [CANARY, 'other'] });
    assert.deepEqual(
      data.map(({ embedding }) => embedding),
      vectors(CANARY, 'other'),
    );
  },

  async 'gets embeddings as floats'({ client }) {
    const request = { model: 'sim-embed', input: CANARY, encoding_format: 'float' as const };
    const { data } = await client.embeddings.create(request);
    assert.deepEqual(
      data.map(({ embedding }) => embedding),
      vectors(CANARY),
    );
  },

  async 'gets embeddings as base64'({ client }) {
    const request = { model: 'sim-embed', input: CANARY, encoding_format: 'base64' as const };
    const { data } = await client.embeddings.create(request);
    const bytes = Buffer.from(String(data[0]?.embedding), 'base64');
    assert.deepEqual(bytes, Buffer.from(vectorOf(CANARY, 16).buffer));
  },

  async 'lists the models, and gets one by its name'({ client, Client }) {
    const listed = (await all(client.models.list())).map(({ id }) => id);
    assert.ok(listed.includes('sim-echo'), listed.join());
    assert.equal((await client.models.retrieve('sim-echo')).id, 'sim-echo');
    await assert.rejects(client.models.retrieve('absent'), (error) => {
      assert.ok(error instanceof Client.NotFoundError, String(error));
      assert.equal(error.code, 'model_not_found');
      return true;
    });
  },

  async 'gets legacy completions, whole and in a stream'({ client }) {
    const request = { model: 'sim-echo', prompt: CANARY };
    const whole = await client.completions.create(request);
    assert.equal(whole.choices[0]?.text, CANARY);
    const chunks = await all(await client.completions.create({ ...request, stream: true }));
    assert.equal(chunks.map(({ choices }) => choices[0]?.text ?? '').join(''), CANARY);
  },

  async 'can read the receipt and the request id of an answer'({ client, stack }) {
    const request = { model: 'sim-echo', messages: MESSAGES };
    const { data, response } = await client.chat.completions.create(request).withResponse();
    assert.equal(data.choices[0]?.message.content, CANARY);
    assert.match(
      response.headers.get('privatemode-proxy-request-id') ?? '',
      new RegExp(`^${CLIENT}_[0-9a-f-]{36}$`),
    );
    assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
  },
};

describeMajors<OpenAIClass, Scene>({
  clients: OPENAI_CLIENTS,
  cases: CASES,
  async start(Client) {
    const stack = await startStack();
    const [baseURL, apiKey] = [`${stack.url}/v1`, 'the key of another vendor'];
    return { stack, Client, client: new Client({ baseURL, apiKey, maxRetries: 0, timeout: 120_000 }) };
  },
  hidden: ['canary-openai-5d1e', 'get_weather', 'another vendor', 'x-stainless', 'OpenAI/JS'],
});
