import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import type { ContentBlock, MessageParam, Tool } from '@anthropic-ai/sdk/resources/messages';
import { proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { all, assertHidden } from './ask.ts';

const CANARY = 'canary-anthropic-9c47 the quick brown fox';
const MESSAGES: MessageParam[] = [{ role: 'user', content: CANARY }];
const REQUEST = { model: 'sim-echo', max_tokens: 1000, messages: MESSAGES };
const TOOL: Tool = {
  name: 'get_weather',
  description: 'canary-anthropic-9c47 in the description of a tool',
  input_schema: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } },
};
const TOOLS = { ...REQUEST, model: 'sim-tools', tools: [TOOL] };

const textOf = (content: readonly ContentBlock[]): string =>
  content.map((block) => (block.type === 'text' ? block.text : '')).join('');

describe("Anthropic's client", () => {
  let stack: Stack;
  let client: Anthropic;
  /** What the service got last. */
  const headers = () => stack.simulator.recorder.requests().at(-1)?.headers ?? {};
  before(async () => {
    // Keys are the clients' own here, so that what becomes of them shows.
    stack = await startStack({ apiKey: null });
    client = new Anthropic({ baseURL: stack.url, apiKey: 'sk-own', maxRetries: 0, timeout: 120_000 });
  });
  after(() => stack.close());

  it('streams a message, with stop reason and usage', async () => {
    const events = await all(await client.messages.create({ ...REQUEST, stream: true }));
    const deltas = events.flatMap((event) => (event.type === 'content_block_delta' ? [event.delta] : []));
    assert.equal(deltas.map((delta) => (delta.type === 'text_delta' ? delta.text : '')).join(''), CANARY);
    const end = events.find((event) => event.type === 'message_delta');
    assert.equal(end?.delta.stop_reason, 'end_turn');
    assert.ok((end?.usage.output_tokens ?? 0) > 1);
    assert.equal(events.at(-1)?.type, 'message_stop');
  });

  it('gets a tool call whole, and an answer after the result', async () => {
    const first = await client.messages.create(TOOLS);
    assert.equal(first.stop_reason, 'tool_use');
    const [call] = first.content;
    assert.ok(call?.type === 'tool_use');
    assert.deepEqual([call.name, call.input], ['get_weather', { city: 'sim', days: 1 }]);
    const content = [{ type: 'tool_result' as const, tool_use_id: call.id, content: 'sunny' }];
    const turns: MessageParam[] = [
      { role: 'assistant', content: first.content },
      { role: 'user', content },
    ];
    const second = await client.messages.create({ ...TOOLS, messages: [...MESSAGES, ...turns] });
    assert.equal(textOf(second.content), 'The tool has answered.');
  });

  it('gathers a tool call of a stream with its stream helper', async () => {
    const stream = client.messages.stream(TOOLS);
    let pieces = 0;
    stream.on('inputJson', () => {
      pieces++;
    });
    const [call] = (await stream.finalMessage()).content;
    assert.ok(call?.type === 'tool_use');
    assert.deepEqual(call.input, { city: 'sim', days: 1 });
    assert.ok(pieces > 1, 'came as one piece');
  });

  it('uses beta features: query, version and beta headers go on unchanged', async () => {
    const betas = ['context-1m-2025-08-07', 'interleaved-thinking-2025-05-14'];
    await client.beta.messages.create({ ...REQUEST, betas }, { query: { beta: 'true' } });
    assert.equal(stack.simulator.recorder.requests().at(-1)?.path, '/v1/messages?beta=true');
    assert.equal(headers()['anthropic-beta'], betas.join(','));
    assert.match(String(headers()['anthropic-version']), /^\d{4}-\d\d-\d\d$/);
  });

  it('gets an estimate of the tokens, without a request to the service', async () => {
    const before = stack.simulator.exchanges.all().length;
    const { model, messages } = REQUEST;
    const { input_tokens: tokens } = await client.messages.countTokens({ model, messages });
    assert.ok(Number.isInteger(tokens) && tokens > 0, `${tokens}`);
    assert.equal(stack.simulator.exchanges.all().length, before);
  });

  it('lists the models, and gets one by its name', async () => {
    const listed = (await all(client.models.list())).map(({ id }) => id);
    assert.ok(listed.includes('sim-echo'), listed.join());
    assert.equal((await client.models.retrieve('sim-echo')).id, 'sim-echo');
    await assert.rejects(client.models.retrieve('absent'), Anthropic.NotFoundError);
  });

  it('brings its key in either header; only a bearer leaves', {
    skip: proxyAlone('caller keys'),
  }, async () => {
    const ways = { apiKey: 'sk-in-x-api-key', authToken: 'token-in-authorization' };
    for (const [option, key] of Object.entries(ways)) {
      const own = new Anthropic({ baseURL: stack.url, apiKey: null, [option]: key, maxRetries: 0 });
      await own.messages.create(REQUEST);
      assert.equal(headers()['authorization'], `Bearer ${key}`);
      assert.equal(headers()['x-api-key'], undefined);
    }
  });

  it('shows the service nothing of all that', () => {
    const words = ['canary-anthropic-9c47', 'get_weather', 'x-stainless', 'Anthropic/JS'];
    assertHidden(stack.simulator, words);
  });
});
