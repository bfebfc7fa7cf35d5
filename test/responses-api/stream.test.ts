/**
 * Chat streams as Responses streams: every row of the event table, and what a stream that is not whole must
 * never hold.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { writeReasoning } from '../../lib/responses-api/response-object.ts';
import { callPiece, chatEvents, chunk, type Json, run, translatorOf, USAGE } from './chat-side.ts';

const TOOLS = {
  include: ['reasoning.encrypted_content'],
  tools: [
    { type: 'function', name: 'f', parameters: {} },
    { type: 'custom', name: 'patch' },
    { type: 'namespace', name: 'mcp__files', tools: [{ type: 'function', name: 'read' }] },
    { type: 'tool_search', execution: 'client' },
  ],
};
const INPUT = 'a"\\\n\u00e9\ud83d\ude00\u2028z';
const ARGS = `{ "input" : ${JSON.stringify(INPUT).replace('\ud83d\ude00', '\\ud83d\\uDE00')} }`;

/** Reasoning, text and a call of each kind. */
const ALL = [
  { reasoning: 'th', reasoning_content: 'th' },
  { reasoning: 'ink', reasoning_content: 'ink' },
  { content: 'Hel' },
  { content: 'lo \u00e9\ud83d\ude00' },
  callPiece(0, '', 'c1', 'f'),
  callPiece(0, '{"a"'),
  callPiece(1, ARGS.slice(0, 20), 'c2', 'patch'),
  callPiece(0, ':1}'),
  callPiece(1, ARGS.slice(20)),
  callPiece(2, '{}', 'c1', 'mcp__files__read'),
  callPiece(3, '{"q":1}', '', 'tool_search'),
  callPiece(4, '{}', 'c4', 'invented'),
];

/** Arguments of a custom call that are no JSON, and the input that the model meant. */
const IMPERFECT: readonly [args: string, input: string][] = [
  ['{"input":"a\n\tb\0"}', 'a\n\tb\0'],
  ['{"input":"\\d\\\\d\\n\\"\\x"}', '\\d\\d\n"\\x'],
  ['{"input":"\\u12\\u12g4\\u"}', '\\u12\\u12g4\\u'],
  ['{"input":"\\ud83d\\d\\ud83d\\ude00\\ud83d\\u12"}', '\ud83d\\d\ud83d\ude00\ud83d\\u12'],
  ['{"input":"a\\\n"}', 'a\\\n'],
  ['{"input":"a\nb"} \n```\n', 'a\nb'],
  [' { "input" : "a" , } done', 'a'],
];

/** Arguments of a custom call whose input is not what their first string says. */
const CONTRADICTORY = [
  '{"input":"a","input":"b"}',
  '{"input":"a","input":7}',
  '{"input":"rm "x" y"}',
  '{"input":"f({a:"}")"}',
  '{"input":"a"]}',
];

/** Arguments of a custom call that end within the object, and are no JSON before. */
const CUT_IMPERFECT = [
  '{"input":"rm -rf /home\n',
  '{"input":"rm -rf /home\n/user\\"}',
  '{"input":"a\\d',
  '{"input":"a\\d\\',
  '{"input":"a\\d"',
  '{"input":"a\n" ,',
];

const typesOf = (events: readonly Json[]): string[] =>
  events.map(({ type }) => type.replace('response.', ''));
const isDoneCall = ({ type, item }: Json): boolean =>
  type === 'response.output_item.done' && item.type !== 'reasoning' && item.type !== 'message';
/** What no client may see of a response that is not whole. */
const promisesWhole = (event: Json): boolean =>
  isDoneCall(event) ||
  /arguments\.done|input\.done|output_text\.done|response\.completed|response\.incomplete/.test(
    event['type'],
  ) ||
  (event['type'] === 'response.output_item.done' && event['item'].type === 'message');

function demandSequence(events: readonly Json[]): void {
  assert.deepEqual(
    events.map((event) => event['sequence_number']),
    events.map((_, at) => at),
  );
}

const lastOf = (events: readonly Json[]): Json => events.at(-1)!;

/** All pieces of arguments, together. */
const argumentsTold = (events: readonly Json[]): string =>
  events
    .filter(({ type }) => type === 'response.function_call_arguments.delta')
    .map(({ delta }) => delta)
    .join('');

describe('a Responses stream', () => {
  it('has its events in the expected order, with the done events of messages and calls at the end', () => {
    const { events, failure } = run(chatEvents(ALL, 'tool_calls'), TOOLS);
    demandSequence(events);
    assert.equal(failure, undefined);
    const [added, call] = ['output_item.added', ['output_item.added', 'function_call_arguments.delta']];
    const [part, callDone] = ['content_part.added', ['function_call_arguments.done', 'output_item.done']];
    const thought = 'reasoning_text.delta';
    assert.deepEqual(typesOf(events), [
      ...['created', 'in_progress', added, part, thought, thought, 'reasoning_text.done'],
      ...['content_part.done', 'output_item.done', added, part, 'output_text.delta', 'output_text.delta'],
      ...[...call, added, 'function_call_arguments.delta', ...call, added, ...call],
      ...['output_text.done', 'content_part.done', 'output_item.done', ...callDone],
      ...['custom_tool_call_input.delta', 'custom_tool_call_input.done', 'output_item.done'],
      ...[...callDone, 'output_item.done', ...callDone, 'completed'],
    ]);
    const { response } = lastOf(events);
    const done = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item);
    assert.deepEqual(response.output, done);
    const [, , , , { call_id: other }, { call_id: empty }] = response.output;
    assert.ok(other !== 'c1' && empty !== '', 'two calls of one id, or a call without any');
    const function_call = { type: 'function_call', status: 'completed' };
    assert.deepEqual(
      response.output.map(({ id, ...item }: Json) => item),
      [
        {
          ...{ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'think' }] },
          ...{ encrypted_content: writeReasoning('think'), status: 'completed' },
        },
        {
          ...{ type: 'message', role: 'assistant', status: 'completed' },
          content: [{ type: 'output_text', text: 'Hello é😀', annotations: [], logprobs: [] }],
        },
        { ...function_call, call_id: 'c1', name: 'f', arguments: '{"a":1}' },
        { ...function_call, type: 'custom_tool_call', call_id: 'c2', name: 'patch', input: INPUT },
        { ...function_call, call_id: other, namespace: 'mcp__files', name: 'read', arguments: '{}' },
        {
          ...{ ...function_call, type: 'tool_search_call', call_id: empty },
          ...{ execution: 'client', arguments: { q: 1 } },
        },
        { ...function_call, call_id: 'c4', name: 'invented', arguments: '{}' },
      ],
    );
    assert.deepEqual(response.usage, {
      input_tokens: 7,
      input_tokens_details: { cached_tokens: 3, cache_write_tokens: 0 },
      output_tokens: 5,
      output_tokens_details: { reasoning_tokens: 2 },
      total_tokens: 12,
    });
    assert.match(response.id, /^resp_[0-9a-f]{24}$/);
    assert.deepEqual(
      [response.created_at, response.model, response.store],
      [1_700_000_000, 'real-model', false],
    );
  });

  it('repeats members of the request in every Response object, but always with store: false', () => {
    const request = {
      store: true,
      metadata: { a: 'b' },
      instructions: 'I',
      temperature: 0.2,
      tools: TOOLS.tools,
    };
    const { events } = run(chatEvents([{ content: 'x' }]), request);
    for (const { response } of events.filter(({ response }) => response !== undefined)) {
      const { store, metadata, instructions, temperature, tools, truncation } = response;
      assert.deepEqual({ store, metadata, instructions, temperature, tools }, { ...request, store: false });
      assert.equal(truncation, 'disabled');
    }
  });

  const ENDS: readonly [finish: string, status: string, reason: string | undefined][] = [
    ['stop', 'completed', undefined],
    ['tool_calls', 'completed', undefined],
    ['length', 'incomplete', 'max_output_tokens'],
    ['content_filter', 'incomplete', 'content_filter'],
    ['abort', 'failed', undefined],
    ['constructor', 'failed', undefined],
  ];
  for (const [finish, status, reason] of ENDS) {
    it(`ends with status ${status} after finish_reason ${finish}`, () => {
      const { events, failure } = run(chatEvents(ALL, finish), TOOLS);
      demandSequence(events);
      const { type, response } = lastOf(events);
      assert.deepEqual(
        [type, response.status, response.incomplete_details?.reason],
        [`response.${status}`, status, reason],
      );
      assert.equal(events.some(isDoneCall), status === 'completed');
      assert.equal(
        response.output.some(({ type: kind }: Json) => kind.endsWith('call')),
        status === 'completed',
      );
      assert.equal(failure?.code, status === 'failed' ? 'stream_unfinished' : undefined);
      const message = response.output.find(({ type: kind }: Json) => kind === 'message');
      assert.equal(message?.status, status === 'failed' ? undefined : status);
    });
  }

  it('ends in response.failed, without a done event, behind whichever event the chat stream is cut', () => {
    const whole = chatEvents(ALL, 'tool_calls');
    for (let at = 0; at < whole.length; at++) {
      const { events, failure } = run(whole.slice(0, at), TOOLS);
      demandSequence(events);
      assert.ok(!events.some(promisesWhole), `cut at ${at}`);
      const { type, response } = lastOf(events);
      assert.deepEqual([type, response.error.code, response.output], ['response.failed', 'server_error', []]);
      assert.match(response.error.message, /^stream_unfinished: .*request id r-1/);
      assert.equal(failure?.code, 'stream_unfinished');
    }
  });

  const ERROR = (code: unknown): Json => ({ error: { message: 'M', type: 't', param: null, code } });
  const FAILURES: readonly [name: string, event: Json, code: string, error: string | undefined][] = [
    ['an error of the service', ERROR(500), 'server_error', undefined],
    ['an overlong prompt', ERROR(400), 'invalid_prompt', undefined],
    ['a full context window', ERROR('context_length_exceeded'), 'context_length_exceeded', undefined],
    ['a limit', ERROR(429), 'rate_limit_exceeded', undefined],
    ['an error with a prototype name', ERROR('__proto__'), 'server_error', undefined],
    ['a call that is a string', chunk({ tool_calls: ['x'] }), 'server_error', 'response_malformed'],
    [
      'a call that changes its name',
      chunk(callPiece(0, '', 'c1', 'g')),
      'server_error',
      'response_malformed',
    ],
    ['a call without a name', chunk(callPiece(9, '{}', 'c9')), 'server_error', 'response_malformed'],
  ];
  for (const [name, event, code, ours] of FAILURES) {
    it(`ends in response.failed at ${name}`, () => {
      const whole = chatEvents(ALL, 'tool_calls');
      whole.splice(-3, 0, event);
      const { events, failure } = run(whole, TOOLS);
      demandSequence(events);
      assert.ok(!events.some(promisesWhole));
      const { type, response } = lastOf(events);
      assert.deepEqual([type, response.error.code], ['response.failed', code]);
      assert.equal(failure?.code, ours ?? 'stream_unfinished');
      assert.ok(
        ours === undefined
          ? response.error.message === 'M' || code === 'server_error'
          : response.error.message.startsWith(`${ours}: `),
      );
    });
  }

  const CUT = [
    ...['{', ' {"a"', '{"":', '{"a":1,"a":2', '{"a":1', '{"a":"\\', '{"a":tru', '{"a":[{}', '{"a":1,'],
    '{"command":"rm -rf /home/user',
  ];
  for (const args of CUT) {
    it(`fails at truncated arguments although finish_reason says that the call is complete: ${args}`, () => {
      for (const name of ['f', 'patch', 'tool_search']) {
        const pieces = [callPiece(0, '{"path":"x"}', 'c0', 'f'), callPiece(1, args, 'c', name)];
        const { events, failure } = run(chatEvents(pieces, 'tool_calls'), TOOLS);
        assert.ok(!events.some(promisesWhole));
        assert.deepEqual([lastOf(events)['type'], failure?.code], ['response.failed', 'stream_unfinished']);
      }
    });
  }

  it('passes on arguments exactly as the model wrote them, even invalid ones, unless they are truncated', () => {
    const others = [
      ...['{"a":1}', ' {} ', '{"a":1}}', '{"a":1},', '{"a":[1]} , {', '{a:1}', "{'a'", 'rm', '[1', '"x', '1'],
      ...['nul', 'nullx', '{"a":1,"a":2}'],
    ];
    for (const args of others) {
      const pieces = [callPiece(0, '', 'c', 'f'), ...[...args].map((piece) => callPiece(0, piece))];
      const { events } = run(chatEvents(pieces, 'tool_calls'), TOOLS);
      assert.equal(lastOf(events)['response'].output[0].arguments, args);
      assert.equal(argumentsTold(events), args);
    }
  });

  it('takes no more work for each piece of long arguments than for each piece of a long text', () => {
    /** CPU time of the thread in microseconds, for a stream of so many pieces. */
    const workOf = (pieceOf: (text: string) => Json): number => {
      const deltas = ['"', ...Array(20_000).fill('abcdef'), '"'].map(pieceOf);
      const chat = chatEvents([callPiece(0, '', 'c', 'patch'), callPiece(1, '', 'd', 'f'), ...deltas]);
      const before = process.threadCpuUsage();
      assert.equal(run(chat, TOOLS).failure, undefined);
      const { user, system } = process.threadCpuUsage(before);
      return user + system;
    };
    const text = workOf((content) => ({ content }));
    // What grows with the square of their number takes a hundred times as long.
    for (const call of [0, 1]) {
      const work = workOf((args) => callPiece(call, args));
      assert.ok(work < 20 * text, `call ${call}: ${work} µs, text: ${text} µs`);
    }
  });

  it('has the arguments {} if the model sends none, or null', () => {
    for (const args of ['', 'null']) {
      const pieces = ['', ...args].map((piece, i) => callPiece(0, piece, ...(i === 0 ? ['c', 'f'] : [])));
      const { events } = run(chatEvents(pieces, 'tool_calls'), TOOLS);
      assert.equal(lastOf(events)['response'].output[0].arguments, '{}');
      assert.equal(argumentsTold(events), '{}');
      const search = run(chatEvents([callPiece(0, args, 'c', 'tool_search')], 'tool_calls'), TOOLS);
      assert.deepEqual(lastOf(search.events)['response'].output[0].arguments, {});
    }
  });

  it('has the whole arguments of a custom call as its input if they are no object with a string "input"', () => {
    for (const args of ['*** Begin', '{"patch":"x"}', '{"input":7}', '["input"]', '', '{"input":}', 'null']) {
      const { events } = run(chatEvents([callPiece(0, args, 'c', 'patch')], 'tool_calls'), TOOLS);
      assert.equal(lastOf(events)['response'].output[0].input, args);
    }
  });

  /** What becomes of the arguments of a custom call in these pieces: deltas, then input or error. */
  const customCall = (pieces: readonly string[]): readonly [deltas: string, end: string] => {
    const deltas = [callPiece(0, '', 'c', 'patch'), ...pieces.map((piece) => callPiece(0, piece))];
    const { events, failure } = run(chatEvents(deltas, 'tool_calls'), TOOLS);
    const told = events.filter(({ type }) => type.endsWith('input.delta')).map(({ delta }) => delta);
    return [told.join(''), failure?.code ?? lastOf(events)['response'].output[0].input];
  };

  it('has the input of a custom call, however it is written, in one delta and in the call', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.nat(200), fc.boolean(), (input, cut, escapes) => {
        const json = JSON.stringify({ input });
        const escaped = (c: string) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`;
        const args = escapes ? json.replace(/[^\x20-\x7e]/g, escaped) : json;
        assert.deepEqual(customCall([args.slice(0, cut), args.slice(cut)]), [input, input]);
      }),
      { seed: 20261124, numRuns: 40 },
    );
  });

  for (const [args, input] of IMPERFECT) {
    it(`has the input that the model meant in a custom call whose JSON is imperfect: ${JSON.stringify(args)}`, () =>
      assert.deepEqual(customCall([...args]), [input, input]));
  }

  for (const args of CONTRADICTORY) {
    it(`has the whole arguments of a custom call as its input if their first string is not all of it: ${args}`, () =>
      assert.deepEqual(customCall([...args]), [args, args]));
  }

  for (const args of CUT_IMPERFECT) {
    it(`fails at truncated arguments of a custom call that are no JSON before: ${args.replaceAll('\n', ' LF ')}`, () =>
      assert.deepEqual(customCall([...args]), ['', 'stream_unfinished']));
  }

  const LONG = 'x'.repeat(1024 * 1024);
  for (const [what, deltas] of Object.entries({
    'more than 16 Mi characters': Array(17).fill({ content: LONG }),
    'calls whose names have more': Array.from({ length: 17 }, (_, k) => callPiece(k, '', `c${k}`, LONG)),
    'more than a million pieces': [
      { tool_calls: Array(1024 * 1024).fill({ index: 0, function: { name: 'f' } }) },
    ],
  }))
    it(`fails with response_too_large with ${what}`, () => {
      const { events, failure } = run(chatEvents(deltas));
      assert.equal(failure?.code, 'response_too_large');
      assert.equal(lastOf(events)['type'], 'response.failed');
    });

  it('ends in response.failed, without a done event, if its last events cannot be written', (t) => {
    const write = JSON.stringify;
    t.mock.method(JSON, 'stringify', (value: Json) => {
      if (value?.['status'] === 'completed' && value['object'] === 'response')
        throw new RangeError('Invalid string length');
      return write(value);
    });
    const { events, failure } = run(chatEvents(ALL, 'tool_calls'), TOOLS);
    demandSequence(events);
    assert.ok(!events.some(promisesWhole));
    assert.deepEqual([lastOf(events)['type'], failure?.code], ['response.failed', 'response_too_large']);
  });
});

describe('a whole chat completion', () => {
  const tool_calls = [
    { id: 'c1', type: 'function', function: { name: 'patch', arguments: '{"input":"x"}' } },
    { id: 'c2', type: 'function', function: { name: 'f', arguments: '{}' } },
  ];
  const whole = (message: Json, finish_reason: unknown = 'stop'): Buffer =>
    Buffer.from(
      JSON.stringify({
        id: 'x',
        object: 'chat.completion',
        created: 5,
        model: 'r',
        usage: USAGE,
        choices: [{ index: 0, message, finish_reason, logprobs: null }],
      }),
    );
  const translator = translatorOf(TOOLS);
  const read = (...input: Parameters<typeof whole>): Json =>
    JSON.parse(translator.body(whole(...input)).toString());

  it('becomes a Response with its refusal, time and usage', () => {
    const response = read({ content: 'a', refusal: 'no', tool_calls }, 'tool_calls');
    assert.deepEqual(
      response['output'][0].content.map((part: Json) => part['text'] ?? part['refusal']),
      ['a', 'no'],
    );
    const { status, created_at, usage, output } = response;
    assert.deepEqual([status, created_at, usage.total_tokens, output.length], ['completed', 5, 12, 3]);
  });

  it('becomes an incomplete Response without its calls if finish_reason is length', () => {
    const response = read({ content: 'a', tool_calls }, 'length');
    assert.deepEqual(
      [response['status'], response['incomplete_details'], response['output'].length],
      ['incomplete', { reason: 'max_output_tokens' }, 1],
    );
  });

  it('is refused with status 502 if it is unfinished, or lacks what a call must have', () => {
    const bad = [
      whole({ tool_calls: [{}] }),
      whole({ content: 'a' }, 'abort'),
      whole({ content: 'a' }, null),
    ];
    for (const body of [Buffer.from('{"choices":[]}'), ...bad]) {
      assert.throws(
        () => translator.body(body),
        (thrown: Json) => thrown['status'] === 502,
      );
    }
  });
});
