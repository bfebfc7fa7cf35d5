/**
 * What an application does with Anthropic's own client, through proxy and simulator: the same table for each
 * major.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import type Anthropic from '@anthropic-ai/sdk';
import type { ContentBlock, MessageParam, Tool } from '@anthropic-ai/sdk/resources/messages';
import { CLIENT, proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { describeMajors } from './majors.ts';
import { ANTHROPIC_CLIENTS, type AnthropicClass, all, watchedFetch } from './versions.ts';

const CANARY = 'canary-anthropic-9c47 the quick brown fox';
const MESSAGES: MessageParam[] = [{ role: 'user', content: CANARY }];
const REQUEST = { model: 'sim-echo', max_tokens: 1000, messages: MESSAGES };
const TOOL: Tool = {
  name: 'get_weather',
  description: 'canary-anthropic-9c47 in the description of a tool',
  input_schema: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } },
};
const ARGUMENTS = { city: 'sim', days: 1 };

interface Scene {
  readonly client: Anthropic;
  readonly Client: AnthropicClass;
  readonly stack: Stack;
}

const textOf = (content: readonly ContentBlock[]): string =>
  content.map((block) => (block.type === 'text' ? block.text : '')).join('');

const image = (source: Anthropic.ImageBlockParam['source']): MessageParam[] => [
  {
    role: 'user',
    content: [
      { type: 'image', source },
      { type: 'text', text: CANARY },
    ],
  },
];

const OWN_KEYS = 'brings its key in either header; only a bearer leaves';

const CASES: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  async 'streams a message, with stop reason and usage'({ client }) {
    const events = await all(await client.messages.create({ ...REQUEST, stream: true }));
    const deltas = events.flatMap((event) => (event.type === 'content_block_delta' ? [event.delta] : []));
    assert.equal(deltas.map((delta) => (delta.type === 'text_delta' ? delta.text : '')).join(''), CANARY);
    const end = events.find((event) => event.type === 'message_delta');
    assert.equal(end?.delta.stop_reason, 'end_turn');
    assert.ok((end?.usage.output_tokens ?? 0) > 1);
    assert.equal(events.at(-1)?.type, 'message_stop');
  },

  async 'answers a message whole'({ client }) {
    const message = await client.messages.create(REQUEST);
    assert.equal(textOf(message.content), CANARY);
    assert.deepEqual([message.type, message.role, message.stop_reason], ['message', 'assistant', 'end_turn']);
    assert.ok(message.usage.input_tokens > 0);
  },

  async 'gathers a stream with its stream helper'({ client }) {
    const stream = client.messages.stream({ ...REQUEST, model: 'sim-200x0' });
    const text = Array.from({ length: 200 }, (_, index) => `t${index}`).join(' ');
    assert.equal(await stream.finalText(), text);
  },

  async 'gets a tool call in a whole response, and an answer after the tool result'({ client }) {
    const request = { ...REQUEST, model: 'sim-tools', tools: [TOOL] };
    const first = await client.messages.create(request);
    assert.equal(first.stop_reason, 'tool_use');
    const [call] = first.content;
    assert.ok(call?.type === 'tool_use');
    assert.deepEqual([call.name, call.input], ['get_weather', ARGUMENTS]);

    const result: MessageParam = {
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }],
    };
    const messages = [...MESSAGES, { role: 'assistant' as const, content: first.content }, result];
    const second = await client.messages.create({ ...request, messages });
    assert.equal(textOf(second.content), 'The tool has answered.');
  },

  async 'gets a tool call in a stream'({ client }) {
    const stream = client.messages.stream({ ...REQUEST, model: 'sim-tools', tools: [TOOL] });
    let pieces = 0;
    stream.on('inputJson', () => {
      pieces++;
    });
    const [call] = (await stream.finalMessage()).content;
    assert.ok(call?.type === 'tool_use');
    assert.deepEqual(call.input, ARGUMENTS);
    assert.ok(pieces > 1, 'came as one piece');
  },

  async 'sends an image of megabytes'({ client, stack }) {
    const data = randomBytes(3 * 1024 * 1024).toString('base64');
    const messages = image({ type: 'base64', media_type: 'image/png', data });
    assert.equal(textOf((await client.messages.create({ ...REQUEST, messages })).content), CANARY);
    assert.equal(stack.simulator.recorder.containing(data.slice(0, 64)).length, 0);
  },

  async 'can send an https URL of an image'({ client }) {
    const messages = image({ type: 'url', url: 'https://images.example/cat.png' });
    assert.equal(textOf((await client.messages.create({ ...REQUEST, messages })).content), CANARY);
  },

  async 'uses beta features: query, version and beta headers go on unchanged'({ Client, stack }) {
    const { fetch, sent } = watchedFetch();
    const client = new Client({ baseURL: stack.url, apiKey: 'sk-own', fetch });
    const betas = ['context-1m-2025-08-07', 'interleaved-thinking-2025-05-14'];
    await client.beta.messages.create({ ...REQUEST, betas }, { query: { beta: 'true' } });
    const request = stack.simulator.recorder.requests().at(-1);
    assert.equal(request?.path, '/v1/messages?beta=true');
    for (const name of ['anthropic-beta', 'anthropic-version']) {
      assert.equal(request?.headers[name], sent[0]?.headers.get(name), name);
    }
    assert.equal(request?.headers['anthropic-beta'], betas.join(','));
  },

  async 'gets an estimate of the tokens, without a request to the service'({ client, stack }) {
    const before = stack.simulator.exchanges.all().length;
    const { model, messages } = REQUEST;
    const { input_tokens: tokens } = await client.messages.countTokens({ model, messages });
    assert.ok(Number.isInteger(tokens) && tokens > 0, `${tokens}`);
    assert.equal(stack.simulator.exchanges.all().length, before);
  },

  async 'lists the models, and gets one by its name'({ client, Client }) {
    const listed = (await all(client.models.list())).map(({ id }) => id);
    assert.ok(listed.includes('sim-echo'), listed.join());
    assert.equal((await client.models.retrieve('sim-echo')).id, 'sim-echo');
    await assert.rejects(client.models.retrieve('absent'), Client.NotFoundError);
  },

  async [OWN_KEYS]({ Client, stack }) {
    const ways = { apiKey: 'sk-in-x-api-key', authToken: 'token-in-authorization' };
    for (const [option, key] of Object.entries(ways)) {
      const own = new Client({ baseURL: stack.url, apiKey: null, [option]: key, maxRetries: 0 });
      await own.messages.create(REQUEST);
      const headers = stack.simulator.recorder.requests().at(-1)?.headers;
      assert.equal(headers?.['authorization'], `Bearer ${key}`);
      assert.equal(headers?.['x-api-key'], undefined);
    }
  },

  async 'can read the receipt and the request id of an answer'({ client, stack }) {
    const { data, response } = await client.messages.create(REQUEST).withResponse();
    assert.equal(textOf(data.content), CANARY);
    assert.match(
      response.headers.get('privatemode-proxy-request-id') ?? '',
      new RegExp(`^${CLIENT}_[0-9a-f-]{36}$`),
    );
    assert.equal(response.headers.get('privatemode-proxy-manifest-sha256'), stack.simulator.manifestSha256);
  },
};

describeMajors<AnthropicClass, Scene>({
  clients: ANTHROPIC_CLIENTS,
  cases: CASES,
  async start(Client) {
    // Keys are the clients' own here, so that what becomes of them shows.
    const stack = await startStack({ apiKey: null });
    const client = new Client({ baseURL: stack.url, apiKey: 'sk-own', maxRetries: 0, timeout: 120_000 });
    return { stack, Client, client };
  },
  hidden: ['canary-anthropic-9c47', 'get_weather', 'x-stainless', 'Anthropic/JS'],
  skips: { [OWN_KEYS]: proxyAlone('caller keys') },
});
