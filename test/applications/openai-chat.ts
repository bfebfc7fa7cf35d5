/** Chats through OpenAI's own client: streams, tools, images. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import type OpenAI from 'openai';
import type { ChatCompletionMessageParam, ChatCompletionTool } from 'openai/resources/chat/completions';
import type { Stack } from '../support/doors/stack.ts';
import { all, type OpenAIClass } from './versions.ts';

export const CANARY = 'canary-openai-5d1e the quick brown fox';
export const MESSAGES: ChatCompletionMessageParam[] = [{ role: 'user', content: CANARY }];
const TOOL: ChatCompletionTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'canary-openai-5d1e in the description of a tool',
    parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } },
  },
};
const ARGUMENTS = { city: 'sim', days: 1 };

export interface Scene {
  readonly client: OpenAI;
  readonly Client: OpenAIClass;
  readonly stack: Stack;
}

const image = (url: string): ChatCompletionMessageParam[] => [
  {
    role: 'user',
    content: [
      { type: 'text', text: CANARY },
      { type: 'image_url', image_url: { url } },
    ],
  },
];
const opened = ({ stack }: Scene): string => stack.simulator.exchanges.last()?.opened ?? '';

export const CHAT_CASES: Readonly<Record<string, (scene: Scene) => Promise<void>>> = {
  async 'streams a chat, with finish reason and usage'({ client }) {
    const stream = await client.chat.completions.create({
      model: 'sim-echo',
      messages: MESSAGES,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = await all(stream);
    const choices = chunks.flatMap((chunk) => chunk.choices);
    assert.equal(choices.map(({ delta }) => delta.content ?? '').join(''), CANARY);
    assert.deepEqual(
      choices.map((choice) => choice.finish_reason).filter((reason) => reason !== null),
      ['stop'],
    );
    assert.ok((chunks.at(-1)?.usage?.completion_tokens ?? 0) > 1);
  },

  async 'answers a chat whole'({ client }) {
    const completion = await client.chat.completions.create({ model: 'sim-echo', messages: MESSAGES });
    assert.equal(completion.choices[0]?.message.content, CANARY);
    assert.equal(completion.object, 'chat.completion');
    assert.ok((completion.usage?.total_tokens ?? 0) > 0);
  },

  async 'gathers a stream with its stream helper'({ client }) {
    const stream = client.chat.completions.stream({ model: 'sim-200x0', messages: MESSAGES });
    const completion = await stream.finalChatCompletion();
    const text = Array.from({ length: 200 }, (_, index) => `t${index}`).join(' ');
    assert.equal(completion.choices[0]?.message.content, text);
  },

  async 'gets a tool call in a whole response, and an answer after the tool result'({ client }) {
    const request = { model: 'sim-tools', tools: [TOOL] };
    const first = await client.chat.completions.create({ ...request, messages: MESSAGES });
    const message = first.choices[0]?.message;
    assert.equal(first.choices[0]?.finish_reason, 'tool_calls');
    const call = message?.tool_calls?.[0];
    assert.ok(message !== undefined && call?.type === 'function');
    assert.equal(call.function.name, 'get_weather');
    assert.deepEqual(JSON.parse(call.function.arguments), ARGUMENTS);

    const result: ChatCompletionMessageParam = { role: 'tool', tool_call_id: call.id, content: 'sunny' };
    const messages = [...MESSAGES, message, result];
    const second = await client.chat.completions.create({ ...request, messages });
    assert.equal(second.choices[0]?.message.content, 'The tool has answered.');
  },

  async 'gets a tool call in a stream'({ client }) {
    const request = { model: 'sim-tools', messages: MESSAGES, tools: [TOOL] };
    const pieces = await all(await client.chat.completions.create({ ...request, stream: true }));
    const calls = pieces.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
    assert.equal(calls.map((call) => call.function?.name ?? '').join(''), 'get_weather');
    assert.ok(calls.length > 2, 'came as one piece');
    assert.deepEqual(JSON.parse(calls.map((call) => call.function?.arguments ?? '').join('')), ARGUMENTS);
  },

  async 'runs tools with the helper runTools'({ client }) {
    const seen: unknown[] = [];
    const runner = client.chat.completions.runTools({
      model: 'sim-tools',
      messages: MESSAGES,
      tools: [
        {
          type: 'function',
          function: {
            name: 'get_weather',
            description: 'a function of the program',
            parameters: { type: 'object', properties: { city: { type: 'string' } } },
            parse: (text: string): object => JSON.parse(text),
            function(values: object) {
              seen.push(values);
              return 'sunny';
            },
          },
        },
      ],
      stream: true,
    });
    assert.equal(await runner.finalContent(), 'The tool has answered.');
    assert.deepEqual(seen, [{ city: 'sim' }]);
  },

  async 'sends an image of 3 MiB in a data URL'(scene) {
    const url = `data:image/png;base64,${randomBytes(3 * 1024 * 1024).toString('base64')}`;
    const completion = await scene.client.chat.completions.create({
      model: 'sim-echo',
      messages: image(url),
    });
    assert.equal(completion.choices[0]?.message.content, CANARY);
    assert.ok(opened(scene).includes('data:image/png;base64,'));
    assert.equal(scene.stack.simulator.recorder.containing('data:image').length, 0);
  },

  async 'can send an https URL of an image'({ client }) {
    const messages = image('https://images.example/cat.png');
    const completion = await client.chat.completions.create({ model: 'sim-echo', messages });
    assert.equal(completion.choices[0]?.message.content, CANARY);
  },

  async 'gets an error for an http URL of an image, before anything is sent'({ client, Client, stack }) {
    const before = stack.simulator.exchanges.all().length;
    const messages = image('http://images.example/cat.png');
    await assert.rejects(client.chat.completions.create({ model: 'sim-echo', messages }), (error) => {
      assert.ok(error instanceof Client.BadRequestError, String(error));
      assert.equal(error.code, 'media_url_refused');
      assert.ok(!error.message.includes('images.example'));
      return true;
    });
    assert.equal(stack.simulator.exchanges.all().length, before);
  },

  async 'can add an unknown member, and a cache_salt of its own'(scene) {
    await scene.client.chat.completions.create({
      model: 'sim-echo',
      messages: MESSAGES,
      ...{ cache_salt: 'a salt of at least thirty-two bytes', chat_template_kwargs: { thinking: true } },
    });
    assert.match(opened(scene), /"cache_salt":\s*"a salt of at least thirty-two bytes"/);
    assert.match(opened(scene), /"chat_template_kwargs":\s*\{"thinking":true\}/);
  },
};
