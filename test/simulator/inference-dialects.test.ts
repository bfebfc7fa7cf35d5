/** What the simulated models say in the two families of dialects, seen by a client that decrypts it. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  askStream,
  askUnary,
  type InferenceServer,
  membersOf,
  startInference,
} from '../support/inference-server.ts';

interface Choice {
  index: number;
  delta?: { role?: string; content?: string; tool_calls?: ToolDelta[] };
  message?: { role: string; content: string | null; tool_calls: ToolDelta[] };
  text?: string;
  finish_reason: string | null;
}

interface ToolDelta {
  id?: string;
  type?: string;
  function: { name?: string; arguments: string };
}

interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
}

interface Completion {
  id: string;
  object: string;
  created: number;
  model: string;
  choices: Choice[];
  usage: Usage;
}

interface MessageEvent {
  type: string;
  index?: number;
  message?: { id: string; role: string; usage: { input_tokens: number; output_tokens: number } };
  content_block?: { type: string; name?: string };
  delta?: { type?: string; text?: string; partial_json?: string; stop_reason?: string };
  usage?: { output_tokens: number };
  error?: { type: string; message: string };
}

describe('the inference side of the simulator', () => {
  let server: InferenceServer;
  before(async () => {
    server = await startInference();
  });
  after(async () => {
    assert.deepEqual(server.exchanges.violations(), []);
    await server.close();
  });

  describe('chat completions', () => {
    it('answers N tokens whole, with usage', async () => {
      const answer = await askUnary<Completion>(server, 'chat', membersOf('chat', 'sim-4x0', 'hello', false));
      assert.equal(answer.object, 'chat.completion');
      assert.equal(answer.created, 1_700_000_000);
      assert.equal(answer.model, 'sim-4x0');
      assert.equal(answer.choices[0]?.message?.content, 't0 t1 t2 t3');
      assert.equal(answer.choices[0]?.finish_reason, 'stop');
      assert.equal(answer.usage.completion_tokens, 4);
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 4);
    });

    it('streams role, tokens, finish, usage without choices, and [DONE]; every chunk carries usage', async () => {
      const all = await askStream<Completion>(server, 'chat', membersOf('chat', 'sim-3x0', 'hello', true));
      assert.deepEqual(all.pop(), { data: '[DONE]' });
      const chunks = all.map(({ data }) => data);
      assert.deepEqual(
        chunks.map(({ choices }) => choices[0]?.delta),
        [
          { role: 'assistant', content: '' },
          { content: 't0' },
          { content: ' t1' },
          { content: ' t2' },
          {},
          undefined,
        ],
      );
      assert.deepEqual(
        chunks.map(({ choices }) => choices[0]?.finish_reason),
        [null, null, null, null, 'stop', undefined],
      );
      assert.deepEqual(
        chunks.map(({ usage }) => usage.completion_tokens),
        [0, 1, 2, 3, 3, 3],
      );
      assert.deepEqual(chunks.at(-1)?.choices, []);
      assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
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
      const sealed = Object.keys(members).filter((name) =>
        /^[^:]+:[0-9a-f]{24}:/.test(String(members[name])),
      );
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

    it('echoes the last user message word by word', async () => {
      const text = '  zwei Wörter\n und 😀 mehr ';
      const messages = [
        { role: 'user', content: 'earlier' },
        { role: 'assistant', content: 'reply' },
        { role: 'user', content: [{ type: 'text', text }] },
      ];
      const all = await askStream<Completion>(server, 'chat', {
        ...membersOf('chat', 'sim-echo', '', true),
        messages,
      });
      const words = all.flatMap(({ data }) => data.choices?.[0]?.delta?.content ?? []);
      assert.equal(words.join(''), text);
      assert.ok(words.length > 5);
    });

    const tools = [
      {
        type: 'function',
        function: {
          name: 'look_up',
          parameters: {
            type: 'object',
            properties: { key: { type: 'string' }, depth: { type: 'integer' }, unit: { enum: ['c', 'f'] } },
            required: ['key', 'depth', 'unit'],
          },
        },
      },
    ];
    const wanted = { key: 'sim', depth: 1, unit: 'c' };

    it('calls the first tool with arguments that fit its schema', async () => {
      const answer = await askUnary<Completion>(server, 'chat', {
        ...membersOf('chat', 'sim-tools', 'x', false),
        tools,
      });
      const [call] = answer.choices[0]?.message?.tool_calls ?? [];
      assert.equal(call?.function.name, 'look_up');
      assert.deepEqual(JSON.parse(call?.function.arguments ?? ''), wanted);
      assert.equal(answer.choices[0]?.finish_reason, 'tool_calls');
      assert.equal(answer.choices[0]?.message?.content, null);
    });

    it('streams a tool call in pieces', async () => {
      const all = await askStream<Completion>(server, 'chat', {
        ...membersOf('chat', 'sim-tools', 'x', true),
        tools,
      });
      const calls = all.flatMap(({ data }) => data.choices?.[0]?.delta?.tool_calls ?? []);
      assert.match(String(calls[0]?.id), /^call_/);
      assert.equal(calls[0]?.function.name, 'look_up');
      assert.ok(calls.length > 3);
      assert.deepEqual(JSON.parse(calls.map((piece) => piece.function.arguments).join('')), wanted);
      assert.equal(all.at(-3)?.data.choices[0]?.finish_reason, 'tool_calls');
    });

    it('answers in words once the tool has answered', async () => {
      const messages = [
        { role: 'user', content: 'x' },
        { role: 'tool', tool_call_id: 'c', content: '1' },
      ];
      const members = { ...membersOf('chat', 'sim-tools', '', false), tools, messages };
      const answer = await askUnary<Completion>(server, 'chat', members);
      assert.equal(answer.choices[0]?.finish_reason, 'stop');
    });

    it('answers an encrypted model-server error with its status, streaming or not', async () => {
      for (const streaming of [true, false]) {
        const members = membersOf('chat', 'sim-error-429', 'x', streaming);
        const answer = await askUnary<{ error: { code: number; message: string } }>(
          server,
          'chat',
          members,
          429,
        );
        assert.equal(answer.error.code, 429);
      }
    });
  });

  describe('legacy completions', () => {
    it('answers whole and streams', async () => {
      const whole = await askUnary<Completion>(
        server,
        'completions',
        membersOf('completions', 'sim-echo', 'a b', false),
      );
      assert.equal(whole.object, 'text_completion');
      assert.equal(whole.choices[0]?.text, 'a b');
      const all = await askStream<Completion>(
        server,
        'completions',
        membersOf('completions', 'sim-echo', 'a b', true),
      );
      assert.deepEqual(all.pop(), { data: '[DONE]' });
      assert.deepEqual(
        all.map(({ data }) => [
          data.choices[0]?.text,
          data.choices[0]?.finish_reason,
          data.usage.completion_tokens,
        ]),
        [
          ['a ', null, 1],
          ['b', null, 2],
          ['', 'stop', 2],
          [undefined, undefined, 2],
        ],
      );
    });
  });

  describe('messages', () => {
    it('answers whole', async () => {
      const answer = await askUnary<{ type: string; content: unknown; stop_reason: string; usage: object }>(
        server,
        'messages',
        membersOf('messages', 'sim-3x0', 'hello', false),
      );
      assert.equal(answer.type, 'message');
      assert.deepEqual(answer.content, [{ type: 'text', text: 't0 t1 t2' }]);
      assert.equal(answer.stop_reason, 'end_turn');
    });

    it('streams the events of the dialect, each named after its type', async () => {
      const all = await askStream<MessageEvent>(
        server,
        'messages',
        membersOf('messages', 'sim-2x0', 'hello', true),
      );
      assert.deepEqual(
        all.map(({ event }) => event),
        [
          'message_start',
          'content_block_start',
          'ping',
          'content_block_delta',
          'content_block_delta',
          'content_block_stop',
          'message_delta',
          'message_stop',
        ],
      );
      for (const { event, data } of all) assert.equal(data.type, event);
      assert.equal(all[0]?.data.message?.role, 'assistant');
      assert.equal(all.map(({ data }) => data.delta?.text ?? '').join(''), 't0 t1');
      assert.equal(all.at(-2)?.data.delta?.stop_reason, 'end_turn');
      assert.equal(all.at(-2)?.data.usage?.output_tokens, 2);
    });

    it('leaves type and usage plain, and has nothing to encrypt in message_stop', async () => {
      const { answer } = await server.ask('messages', membersOf('messages', 'sim-echo', 'two words', true));
      const text = answer.body.toString();
      assert.match(text, /event: message_stop\ndata: \{"type":"message_stop"\}\n\n$/);
      assert.match(text, /"usage":\{"output_tokens":2\}/);
      assert.doesNotMatch(text, /two words/);
    });

    const tools = [{ name: 'look_up', input_schema: { properties: { key: { type: 'string' } } } }];

    it('uses a tool, whole and streamed', async () => {
      const members = { ...membersOf('messages', 'sim-tools', 'x', false), tools };
      const whole = await askUnary<{ content: unknown[]; stop_reason: string }>(server, 'messages', members);
      const block = whole.content[0] as { type: string; name: string; input: unknown };
      assert.equal(block.type, 'tool_use');
      assert.deepEqual(block.input, { key: 'sim' });
      assert.equal(whole.stop_reason, 'tool_use');

      const all = await askStream<MessageEvent>(server, 'messages', { ...members, stream: true });
      assert.equal(all[1]?.data.content_block?.name, 'look_up');
      const json = all.map(({ data }) => data.delta?.partial_json ?? '').join('');
      assert.deepEqual(JSON.parse(json), { key: 'sim' });
      assert.equal(all.at(-2)?.data.delta?.stop_reason, 'tool_use');
    });

    it('answers an error in its own dialect', async () => {
      const members = membersOf('messages', 'sim-error-529', 'x', true);
      const answer = await askUnary<MessageEvent>(server, 'messages', members, 529);
      assert.equal(answer.type, 'error');
      assert.equal(answer.error?.type, 'overloaded_error');
    });
  });
});
