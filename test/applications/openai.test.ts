import assert from 'node:assert/strict';
import { hash, randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import type { ChatCompletionMessageParam, ChatCompletionTool } from 'openai/resources/chat/completions';
import { vectorOf } from '../../simulator/inference/models/embeddings.ts';
import { CLIENT } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { all, assertHidden } from './ask.ts';

const CANARY = 'canary-openai-5d1e the quick brown fox';
const MESSAGES: ChatCompletionMessageParam[] = [{ role: 'user', content: CANARY }];
const ASKED = { model: 'sim-echo', messages: MESSAGES };
const PARAMETERS = { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } };
const TOOL: ChatCompletionTool = {
  type: 'function',
  function: { name: 'get_weather', description: `${CANARY} in a tool`, parameters: PARAMETERS },
};

describe("OpenAI's client", () => {
  let stack: Stack;
  let client: OpenAI;
  before(async () => {
    stack = await startStack();
    const [baseURL, apiKey] = [`${stack.url}/v1`, 'the key of another vendor'];
    client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 120_000 });
  });
  after(() => stack.close());

  // The usual loop takes `choices[0]` of every chunk, which a chunk of usage alone does not have.
  for (const options of [undefined, { include_usage: false }, { include_usage: true }]) {
    const counts = options?.include_usage === true;
    const how = counts ? 'in a last chunk without choices' : 'nowhere, and a choice in every chunk';
    it(`streams a chat with ${JSON.stringify(options) ?? 'no options'}: usage is ${how}`, async () => {
      const more = options === undefined ? {} : { stream_options: options };
      const chunks = await all(await client.chat.completions.create({ ...ASKED, stream: true, ...more }));
      const words = counts ? chunks.slice(0, -1) : chunks;
      assert.equal(words.map(({ choices }) => choices[0]!.delta.content ?? '').join(''), CANARY);
      assert.equal(words.at(-1)?.choices[0]?.finish_reason, 'stop');
      const counted = chunks.filter((chunk) => 'usage' in chunk);
      assert.deepEqual(counted, chunks.slice(words.length));
      if (counts) assert.deepEqual(chunks.at(-1)?.choices, []);
      if (counts) assert.ok((chunks.at(-1)?.usage?.completion_tokens ?? 0) > 1);
    });
  }

  it('answers a chat whole, with request id and receipt in the headers', async () => {
    const { data, response } = await client.chat.completions.create(ASKED).withResponse();
    assert.deepEqual([data.object, data.choices[0]?.message.content], ['chat.completion', CANARY]);
    assert.ok((data.usage?.total_tokens ?? 0) > 0);
    const { headers } = response;
    assert.match(headers.get('privatemode-proxy-request-id') ?? '', new RegExp(`^${CLIENT}_[0-9a-f-]{36}$`));
    assert.equal(headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
  });

  it('gets a tool call whole, and an answer after the result', async () => {
    const request = { model: 'sim-tools', tools: [TOOL] };
    const first = await client.chat.completions.create({ ...request, messages: MESSAGES });
    const message = first.choices[0]?.message;
    assert.equal(first.choices[0]?.finish_reason, 'tool_calls');
    const call = message?.tool_calls?.[0];
    assert.ok(message !== undefined && call?.type === 'function');
    const made = [call.function.name, JSON.parse(call.function.arguments)];
    assert.deepEqual(made, ['get_weather', { city: 'sim', days: 1 }]);
    const result: ChatCompletionMessageParam = { role: 'tool', tool_call_id: call.id, content: 'sunny' };
    const messages = [...MESSAGES, message, result];
    const second = await client.chat.completions.create({ ...request, messages });
    assert.equal(second.choices[0]?.message.content, 'The tool has answered.');
  });

  it('runs tools of a stream with its helper runTools', async () => {
    const seen: unknown[] = [];
    const run = {
      name: 'get_weather',
      description: CANARY,
      parameters: PARAMETERS,
      parse: (text: string): object => JSON.parse(text),
      function(values: object) {
        seen.push(values);
        return 'sunny';
      },
    };
    const tools = [{ type: 'function' as const, function: run }];
    const asked = { ...ASKED, model: 'sim-tools', tools, stream: true as const };
    const runner = client.chat.completions.runTools(asked);
    assert.equal(await runner.finalContent(), 'The tool has answered.');
    assert.deepEqual(seen, [{ city: 'sim', days: 1 }]);
  });

  it('has a recording transcribed, whole and in a stream', async () => {
    const bytes = randomBytes(700_000);
    const file = await OpenAI.toFile(bytes, 'canary-openai-5d1e.wav', { type: 'audio/wav' });
    const asked = { model: 'sim-echo', file, language: 'en' };
    const { text } = await client.audio.transcriptions.create(asked);
    assert.ok(text.includes(`file=${bytes.length} bytes sha256:${hash('sha256', bytes)}`), text);
    assert.ok(text.includes('language=en'), text);
    assert.equal(stack.simulator.recorder.containing(bytes.subarray(1000, 1040)).length, 0);
    const stream = await client.audio.transcriptions.create({ ...asked, stream: true });
    // The service streams transcripts in the shape of a chat, not in that of the client's types.
    const events = (await all(stream)) as unknown as { choices: { delta: { content: string } }[] }[];
    const words = events.flatMap(({ choices }) => choices.map(({ delta }) => delta.content)).join('');
    assert.ok(words.includes(hash('sha256', bytes)), words);
  });

  it('gets embeddings as floats and as base64, which is what it asks for by default', async () => {
    const expected = [CANARY, 'other'].map((text) => [...vectorOf(text, 16)]);
    for (const more of [{}, { encoding_format: 'float' as const }]) {
      const request = { model: 'sim-embed', input: [CANARY, 'other'], ...more };
      const { data } = await client.embeddings.create(request);
      const vectors = data.map(({ embedding }) => embedding);
      assert.deepEqual(vectors, expected);
    }
  });

  it('lists the models, and gets one by its name', async () => {
    const listed = (await all(client.models.list())).map(({ id }) => id);
    assert.ok(listed.includes('sim-echo'), listed.join());
    assert.equal((await client.models.retrieve('sim-echo')).id, 'sim-echo');
    await assert.rejects(client.models.retrieve('absent'), { code: 'model_not_found', status: 404 });
  });

  it('shows the service nothing of all that', () => {
    const words = ['canary-openai-5d1e', 'get_weather', 'another vendor'];
    assertHidden(stack.simulator, [...words, 'x-stainless', 'OpenAI/JS']);
  });
});
