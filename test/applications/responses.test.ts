/**
 * The Responses API by the official clients, through proxy and simulator. Each answer is scripted, and asked
 * for whole and as a stream. Every event is one of those in responses-events.ts, which the compiler holds to
 * the types of both majors.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type OpenAI from 'openai';
import { callPiece, chatStream, chunk, type Json, USAGE } from '../responses-api/chat-side.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { EVENTS } from './responses-events.ts';
import { all, OPENAI_CLIENTS } from './versions.ts';

type Request = Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, 'model' | 'stream'>;

const PROMPT = 'canary-responses-2c7d hello';
const IMAGE = `data:image/png;base64,${Buffer.alloc(3_000, 7).toString('base64')}`;
const INPUT = '*** Begin Patch\n"é😀\\';
const READ = {
  type: 'function',
  name: 'read',
  parameters: { type: 'object', properties: { path: { type: 'string' } } },
  strict: false,
} as const;
const SCHEMA = {
  type: 'object',
  properties: { a: { type: 'integer' } },
  required: ['a'],
  additionalProperties: false,
};

interface Case {
  readonly request?: Request;
  /** What the model says, in the pieces of a stream. */
  readonly deltas: readonly Json[];
  readonly finish?: string;
  /** The items, without ids and statuses. */
  readonly output: readonly Json[];
  readonly end?: readonly [status: string, reason: string];
  /** What the model must have been told. */
  readonly opened?: RegExp;
}

const text = (value: string): Json => ({
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text: value, annotations: [], logprobs: [] }],
});
const call = (name: string, args: string, more: Json = {}): Json => ({
  ...{ type: 'function_call', name, arguments: args },
  ...more,
});

const CASES: Readonly<Record<string, Case>> = {
  text: { deltas: [{ content: 'Hel' }, { content: 'lo é😀' }], output: [text('Hello é😀')] },
  'a function call': {
    request: { tools: [READ] },
    deltas: [callPiece(0, '', 'c1', 'read'), callPiece(0, '{"path"'), callPiece(0, ':"a"}')],
    finish: 'tool_calls',
    output: [call('read', '{"path":"a"}', { call_id: 'c1' })],
    opened: /"name":"read"/,
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
      ...['a', 'b'].map((path, at) => call('read', JSON.stringify({ path }), { call_id: `c${at + 1}` })),
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
    opened: /lark grammar/,
  },
  'a call of a tool in a namespace': {
    request: { tools: [{ type: 'namespace', name: 'mcp__files', description: 'Files.', tools: [READ] }] },
    deltas: [callPiece(0, '{}', 'c1', 'mcp__files__read')],
    finish: 'tool_calls',
    output: [call('read', '{}', { call_id: 'c1', namespace: 'mcp__files' })],
  },
  'a search for tools': {
    request: {
      tools: [
        { type: 'tool_search', execution: 'client', description: 'Finds.', parameters: { type: 'object' } },
      ],
    },
    deltas: [callPiece(0, '{"q":1}', 'c1', 'tool_search')],
    finish: 'tool_calls',
    output: [{ type: 'tool_search_call', call_id: 'c1', execution: 'client', arguments: { q: 1 } }],
  },
  'words on an image': {
    request: {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: PROMPT },
            { type: 'input_image', image_url: IMAGE, detail: 'low' },
          ],
        },
      ],
    },
    deltas: [{ content: 'A cat.' }],
    output: [text('A cat.')],
    opened: /"detail":"low"/,
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
    opened: /"reasoning_effort":"high"/,
  },
  'JSON of a schema': {
    request: { text: { format: { type: 'json_schema', name: 'answer', schema: SCHEMA, strict: true } } },
    deltas: [{ content: '{"a":' }, { content: '1}' }],
    output: [text('{"a":1}')],
    opened: /"response_format":\{"type":"json_schema"/,
  },
  'an end by length': {
    request: { max_output_tokens: 2, tools: [READ] },
    deltas: [{ content: 'To be' }, callPiece(0, '{"path"', 'c1', 'read')],
    finish: 'length',
    output: [text('To be')],
    end: ['incomplete', 'max_output_tokens'],
    opened: /"max_completion_tokens":2/,
  },
  'an end by the content filter': {
    deltas: [{ content: 'No' }],
    finish: 'content_filter',
    output: [text('No')],
    end: ['incomplete', 'content_filter'],
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

/** Items without what differs from one response to the next, and from whole to incomplete. */
const plain = (
  items: readonly unknown[],
  names: readonly string[] = ['id', 'status', 'parsed', 'parsed_arguments'],
): unknown => JSON.parse(JSON.stringify(items, (name, value) => (names.includes(name) ? undefined : value)));

/** Words that decide what a type is; any other text may hold anything. */
const WORDS = new Set([
  ...[
    'type',
    'status',
    'role',
    'object',
    'reason',
    'execution',
    'code',
    'effort',
    'summary',
    'detail',
    'syntax',
  ],
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
      // the member that the clients themselves add
      if (name === 'response') return { ...value, output_text: '' };
      return typeof value === 'string' ? value.replace(IDS, '$1_1') : value;
    }),
  );

describe('the Responses API, used by the official clients', { timeout: 600_000 }, () => {
  let stack: Stack;
  /** By shape. */
  const seen = new Map<string, Json>();
  before(async () => {
    const transcripts = join(temporaryDirectory('responses-'), 'scripts.json');
    const scripts = Object.entries(CASES).map(([name, row]) => [modelOf(name), scriptOf(row)]);
    writeFileSync(transcripts, JSON.stringify(Object.fromEntries(scripts)));
    stack = await startStack({ simulator: { transcripts }, flags: ['--responses-api'] });
  });
  after(async () => {
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    assert.equal(stack.simulator.recorder.containing(PROMPT).length, 0);
    await stack.close();
  });

  for (const [version, Client] of Object.entries(OPENAI_CLIENTS)) {
    describe(version, () => {
      let client: OpenAI;
      before(() => {
        client = new Client({ baseURL: `${stack.url}/v1`, apiKey: 'placeholder', maxRetries: 0 });
      });
      const note = (event: Json): void => {
        const recorded = recordable(event);
        seen.set(shapeOf(recorded), recorded);
      };

      for (const [name, { request, output, end, opened }] of Object.entries(CASES)) {
        const asked = { model: modelOf(name), input: PROMPT, ...request };
        const [status, reason] = end ?? ['completed', undefined];

        it(`gets ${name}, whole`, async () => {
          const response = await client.responses.create(asked);
          assert.deepEqual(plain(response.output), output);
          assert.deepEqual([response.status, response.incomplete_details?.reason], [status, reason]);
          assert.deepEqual([response.usage?.input_tokens, response.usage?.total_tokens], [7, 12]);
          note({
            type: 'response.completed',
            sequence_number: 0,
            response: { ...response, status: 'completed' },
          });
          const told = stack.simulator.exchanges.last()?.opened ?? '';
          if (opened !== undefined) assert.match(told, opened);
        });

        it(`gets ${name}, by the stream helper of the client`, async () => {
          const stream = client.responses.stream(asked);
          const final = await stream.finalResponse();
          assert.deepEqual(plain(final.output), output);
          assert.deepEqual([final.status, final.incomplete_details?.reason], [status, reason]);
        });

        it(`gets ${name}, event by event`, async () => {
          const events = await all(await client.responses.create({ ...asked, stream: true }));
          assert.deepEqual(
            events.map(({ sequence_number: number }) => number),
            [...events.keys()],
          );
          const done = events.filter(({ type }) => type === 'response.output_item.done') as Json[];
          assert.deepEqual(plain(done.map(({ item }) => item)), output);
          assert.equal(events.at(-1)?.type, `response.${status}`);
          for (const event of events) note(event);
        });
      }

      it('parses JSON of a schema by its helper', async () => {
        const { request } = CASES['JSON of a schema'] as Case;
        const asked = { model: modelOf('JSON of a schema'), input: PROMPT, ...request };
        const { output_parsed: parsed } = await client.responses.parse(asked as never);
        assert.deepEqual(parsed, { a: 1 });
      });

      it('gets, before the stream, unsupported_parameter with the name of the member that cannot be translated', async () => {
        const wrong: [param: string, request: Request][] = [
          ['previous_response_id', { input: PROMPT, previous_response_id: 'resp_1' }],
          ['background', { input: PROMPT, background: true }],
          [
            'input[0].content[0].type',
            { input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'f' }] }] },
          ],
        ];
        for (const [param, request] of wrong) {
          for (const stream of [false, true]) {
            await assert.rejects(
              async () => client.responses.create({ model: 'sim-echo', ...request, stream } as never),
              (error) => {
                assert.ok(error instanceof Client.BadRequestError, String(error));
                assert.deepEqual([error.param, error.code], [param, 'unsupported_parameter']);
                return true;
              },
            );
          }
        }
      });

      it('raises BadRequestError if the service answers 400', async () => {
        const asked = { model: 'sim-error-400', input: PROMPT };
        await assert.rejects(client.responses.create(asked), Client.BadRequestError);
        await assert.rejects(client.responses.stream(asked).finalResponse(), Client.BadRequestError);
      });

      for (const fault of ['truncate:4', 'flip_tag:2', 'missing_terminal', 'error_event:2']) {
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

      it('ends the exchange at the service if the program leaves the loop or aborts', async () => {
        const { exchanges } = stack.simulator;
        const stream = await client.responses.create({ model: 'sim-1000x20', input: PROMPT, stream: true });
        let pieces = 0;
        for await (const { type } of stream) {
          if (type === 'response.output_text.delta') pieces += 1;
          if (pieces === 3) break;
        }
        await eventually('the end at the service', () => exchanges.inFlight() === 0);
        assert.ok(exchanges.last()?.closedEarlyAt !== undefined);
        const left = new AbortController();
        const helper = client.responses.stream(
          { model: 'sim-1000x20', input: PROMPT },
          { signal: left.signal },
        );
        helper.on('response.output_text.delta', () => left.abort());
        await assert.rejects(helper.finalResponse(), Client.APIUserAbortError);
        await eventually('the end at the service', () => exchanges.inFlight() === 0);
      });
    });
  }

  it("has only events of the shapes recorded in responses-events.ts, which are checked against the clients' types", () => {
    if (process.env['RECORD_EVENTS'] === '1') {
      const file = join(import.meta.dirname, 'responses-events.ts');
      const lines = [...seen.values()].map((event) => `  ${JSON.stringify(event)},\n`);
      const [head, tail] = readFileSync(file, 'utf8').split(/(?<=EVENTS = \[\n)[\s\S]*(?=\] satisfies)/);
      writeFileSync(file, [head, ...lines, tail].join(''));
      return;
    }
    const recorded = new Set(EVENTS.map((event) => shapeOf(event)));
    assert.deepEqual(
      [...seen.keys()].filter((shape) => !recorded.has(shape)),
      [],
    );
    assert.ok(recorded.size > 30);
  });
});
