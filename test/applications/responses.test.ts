/**
 * The Responses API by OpenAI's own client, through proxy and simulator. Each answer is scripted, and asked
 * for whole and as a stream. Every event is one of those in responses-events.ts, which the compiler holds to
 * the client's types.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { callPiece, chatStream, chunk, type Json, USAGE } from '../responses-api/chat-side.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { all, assertHidden } from './ask.ts';
import { EVENTS } from './responses-events.ts';

type Request = Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, 'model' | 'stream'>;

const PROMPT = 'canary-responses-2c7d hello';
const INPUT = '*** Begin Patch\n"é😀\\';
const READ = {
  type: 'function',
  name: 'read',
  parameters: { type: 'object', properties: { path: { type: 'string' } } },
  strict: false,
} as const;
const SCHEMA = {
  ...{ type: 'object', required: ['a'], additionalProperties: false },
  properties: { a: { type: 'integer' } },
};

interface Case {
  readonly request?: Request;
  /** What the model says, in the pieces of a stream. */
  readonly deltas: readonly Json[];
  readonly finish?: string;
  /** The items, without ids and statuses. */
  readonly output: readonly Json[];
  readonly end?: readonly string[];
}

const text = (value: string): Json => ({
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text: value, annotations: [], logprobs: [] }],
});
const call = (args: string, more: Json): Json => ({
  ...{ type: 'function_call', name: 'read', arguments: args },
  ...more,
});

const CASES: Readonly<Record<string, Case>> = {
  text: { deltas: [{ content: 'Hel' }, { content: 'lo é😀' }], output: [text('Hello é😀')] },
  'a function call': {
    request: { tools: [READ] },
    deltas: [callPiece(0, '', 'c1', 'read'), callPiece(0, '{"path"'), callPiece(0, ':"a"}')],
    finish: 'tool_calls',
    output: [call('{"path":"a"}', { call_id: 'c1' })],
  },
  'parallel calls behind words': {
    request: { tools: [READ], parallel_tool_calls: true, tool_choice: 'auto' },
    deltas: [
      { content: 'Both.' },
      callPiece(0, '{"path":', 'c1', 'read'),
      callPiece(1, '{"path":', 'c2', 'read'),
      callPiece(0, '"a"}'),
      callPiece(1, '"b"}'),
    ],
    finish: 'tool_calls',
    output: [
      text('Both.'),
      ...['a', 'b'].map((path, at) => call(JSON.stringify({ path }), { call_id: `c${at + 1}` })),
    ],
  },
  'a call of a custom tool': {
    request: {
      tools: [
        {
          type: 'custom',
          name: 'patch',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
        },
      ],
    },
    deltas: [callPiece(0, '{"inp', 'c1', 'patch'), callPiece(0, `ut":${JSON.stringify(INPUT)}}`)],
    finish: 'tool_calls',
    output: [{ type: 'custom_tool_call', call_id: 'c1', name: 'patch', input: INPUT }],
  },
  reasoning: {
    request: { reasoning: { effort: 'high', summary: 'auto' }, include: ['reasoning.encrypted_content'] },
    deltas: [{ reasoning: 'th' }, { reasoning: 'ink' }, { content: 'So.' }],
    output: [
      {
        ...{ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'think' }] },
        encrypted_content: `privatemode.1.${Buffer.from('"think"').toString('base64')}`,
      },
      text('So.'),
    ],
  },
  'JSON of a schema': {
    request: { text: { format: { type: 'json_schema', name: 'answer', schema: SCHEMA, strict: true } } },
    deltas: [{ content: '{"a":' }, { content: '1}' }],
    output: [text('{"a":1}')],
  },
  'an end by length': {
    request: { max_output_tokens: 2, tools: [READ] },
    deltas: [{ content: 'To be' }, callPiece(0, '{"path"', 'c1', 'read')],
    finish: 'length',
    output: [text('To be')],
    end: ['incomplete', 'max_output_tokens'],
  },
  'a refusal': {
    deltas: [{ refusal: 'I will ' }, { refusal: 'not.' }],
    output: [{ type: 'message', role: 'assistant', content: [{ type: 'refusal', refusal: 'I will not.' }] }],
  },
};

/** Both names under which the service sends reasoning. */
const twice = (delta: Json): Json =>
  delta['reasoning'] === undefined ? delta : { ...delta, reasoning_content: delta['reasoning'] };

/** The deltas as one message. */
function messageOf(deltas: readonly Json[]): Json {
  const message: Json = { role: 'assistant', content: null };
  const calls: Json[] = [];
  for (const delta of deltas) {
    for (const name of ['content', 'refusal', 'reasoning', 'reasoning_content'])
      if (delta[name] !== undefined) message[name] = (message[name] ?? '') + delta[name];
    for (const { index, id, function: of } of delta['tool_calls'] ?? []) {
      calls[index] ??= { id, type: 'function', function: { name: of['name'], arguments: '' } };
      calls[index]!['function'].arguments += of.arguments;
    }
  }
  return calls.length > 0 ? { ...message, tool_calls: calls } : message;
}

function scriptOf({ deltas, finish = 'stop' }: Case): Json {
  const pieces = deltas.map(twice);
  const choice = { index: 0, message: messageOf(pieces), logprobs: null, finish_reason: finish };
  const { id, created, model } = chunk({});
  return {
    events: chatStream(pieces, finish).map((event) => ({ data: event.slice('data: '.length, -2) })),
    unary: { body: { id, object: 'chat.completion', created, model, choices: [choice], usage: USAGE } },
  };
}

const modelOf = (name: string): string => `script-${name.replaceAll(' ', '-')}`;

/** Items without what differs from one response to the next. */
const plain = (items: readonly unknown[]): unknown =>
  JSON.parse(JSON.stringify(items, (name, value) => (VARYING.has(name) ? undefined : value)));
const VARYING = new Set(['id', 'status', 'parsed', 'parsed_arguments']);

/** Words that decide what a type is; any other text may hold anything. */
const WORDS = new Set([
  ...['type', 'status', 'role', 'object', 'reason', 'execution', 'code', 'effort', 'summary', 'syntax'],
  ...['tool_choice', 'service_tier', 'truncation', 'include'],
]);

/** What the types see of a value: names, kinds, and the words that tell kinds apart. */
function shapeOf(value: unknown, name = ''): string {
  if (Array.isArray(value)) return `[${[...new Set(value.map((item) => shapeOf(item)))].sort()}]`;
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).map(([key, member]) => `${key}:${shapeOf(member, key)}`);
    return `{${members.sort()}}`;
  }
  return typeof value === 'string' && WORDS.has(name) ? value : value === null ? 'null' : typeof value;
}

const IDS = /^(resp|rs|msg|fc|ctc|tsc|call)_[0-9a-f]{24}$/;
/** An event as it is recorded: nothing in it that changes from run to run. */
const recordable = (event: Json): Json =>
  JSON.parse(
    JSON.stringify(event, (name, value) => {
      if (name === 'completed_at' && value !== null) return 1_700_000_001;
      if (name === 'message' && typeof value === 'string') return 'what happened';
      if (name === 'tools') return []; // the request's own
      // the member that the clients themselves add
      if (name === 'response') return { ...value, output_text: '' };
      return typeof value === 'string' ? value.replace(IDS, '$1_1') : value;
    }),
  );

describe("the Responses API, by OpenAI's client", () => {
  let stack: Stack;
  let client: OpenAI;
  /** By shape. */
  const seen = new Map<string, Json>();
  const note = (event: Json): void => {
    const recorded = recordable(event);
    seen.set(shapeOf(recorded), recorded);
  };
  before(async () => {
    const transcripts = join(temporaryDirectory('responses-'), 'scripts.json');
    const scripts = Object.entries(CASES).map(([name, row]) => [modelOf(name), scriptOf(row)]);
    writeFileSync(transcripts, JSON.stringify(Object.fromEntries(scripts)));
    stack = await startStack({ simulator: { transcripts }, flags: ['--responses-api'] });
    client = new OpenAI({ baseURL: `${stack.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
  });
  after(async () => {
    assertHidden(stack.simulator, [PROMPT]);
    await stack.close();
  });

  for (const [name, { request, output, end = ['completed'] }] of Object.entries(CASES)) {
    it(`gets ${name}: whole, by the stream helper, and event by event`, async () => {
      const asked = { model: modelOf(name), input: PROMPT, ...request };
      const whole = await client.responses.create(asked);
      const gathered = await client.responses.stream(asked).finalResponse();
      for (const response of [whole, gathered]) {
        assert.deepEqual(plain(response.output), output);
        const reason = response.incomplete_details?.reason;
        assert.deepEqual([response.status, ...(reason === undefined ? [] : [reason])], end);
        assert.deepEqual([response.usage?.input_tokens, response.usage?.total_tokens], [7, 12]);
      }
      const response = { ...whole, status: 'completed' };
      note({ type: 'response.completed', sequence_number: 0, response });
      const events = await all(await client.responses.create({ ...asked, stream: true }));
      const numbers = events.map(({ sequence_number: number }) => number);
      assert.deepEqual(numbers, [...events.keys()]);
      const done = events.filter(({ type }) => type === 'response.output_item.done') as Json[];
      assert.deepEqual(plain(done.map(({ item }) => item)), output);
      assert.equal(events.at(-1)?.type, `response.${end[0]}`);
      for (const event of events) note(event);
    });
  }

  for (const fault of ['truncate:4', 'flip_tag:2', 'error_event:2']) {
    it(`raises an error in mid-stream (${fault}), after response.failed and without a finished call`, async () => {
      const asked = { model: `sim-tools+fault=${fault}`, input: PROMPT, tools: [READ] };
      await assert.rejects(client.responses.stream(asked).finalResponse());
      const events: Json[] = [];
      await assert.rejects(async () => {
        for await (const event of await client.responses.create({ ...asked, stream: true }))
          events.push(event);
      });
      for (const event of events) note(event);
      assert.equal(events.at(-1)?.['type'], 'response.failed');
      assert.ok(!events.some(({ type }) => type === 'response.output_item.done'));
    });
  }

  it("has only events of the shapes recorded in responses-events.ts, which are checked against the client's types", () => {
    if (process.env['RECORD_EVENTS'] === '1') {
      const file = join(import.meta.dirname, 'responses-events.ts');
      const lines = [...seen.values()].map((event) => `  ${JSON.stringify(event)},\n`);
      const [head, tail] = readFileSync(file, 'utf8').split(/(?<=EVENTS = \[\n)[\s\S]*(?=\] satisfies)/);
      writeFileSync(file, [head, ...lines, tail].join(''));
      return;
    }
    const recorded = new Set(EVENTS.map((event) => shapeOf(event)));
    const unknown = [...seen.keys()].filter((shape) => !recorded.has(shape));
    assert.deepEqual(unknown, []);
  });
});
