/** Every row of the request tables of docs/protocol/responses.md. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { errorResponse } from '../../lib/api/error-response.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { bodyReader, type ParsedBody } from '../../lib/pipeline/request-body.ts';
import { RequestRefusal } from '../../lib/responses-api/request-refusal.ts';
import { writeReasoning } from '../../lib/responses-api/response-object.ts';
import { createTranslator } from '../../lib/responses-api/translator.ts';
import { chatOf, type Json, translated, translateRequest } from './chat-side.ts';

const call = (more: Json = {}) => ({
  type: 'function_call',
  namespace: null,
  id: 'fc_9',
  call_id: 'c1',
  name: 'f',
  arguments: '{}',
  ...more,
});
const fn = (name: string, more: Json = {}) => ({
  type: 'function',
  name,
  parameters: { type: 'object' },
  strict: true,
  ...more,
});
const custom = (name: string, more: Json = {}) => ({ type: 'custom', name, ...more });
const namespace = (name: string, tools: readonly Json[]) => ({ type: 'namespace', name, tools });
const chatCall = (name: string, args: string, id = 'c1') => ({
  id,
  type: 'function',
  function: { name, arguments: args },
});
const says = (role: string, content: unknown) => ({ type: 'message', role, content });
const IMAGE = { type: 'input_image', image_url: 'data:image/png;base64,AA==', detail: 'original' };

describe('the translator of Responses requests', () => {
  const SAME = {
    ...{ temperature: 0.5, top_p: 0.9, user: 'u', safety_identifier: 's', service_tier: 'auto' },
    ...{ cache_salt: 'x'.repeat(32), parallel_tool_calls: false },
  };
  const MEMBERS: readonly [name: string, request: Json, chat: Json][] = [
    ['members that chat has under the same names', SAME, SAME],
    ['max_output_tokens', { max_output_tokens: 9 }, { max_completion_tokens: 9 }],
    [
      'stream',
      { stream: true, stream_options: { include_obfuscation: true } },
      { stream: true, stream_options: { include_usage: true } },
    ],
    ['text', { text: { format: { type: 'text' }, verbosity: 'low' } }, {}],
    ['JSON', { text: { format: { type: 'json_object' } } }, { response_format: { type: 'json_object' } }],
    [
      'a JSON schema',
      { text: { format: { type: 'json_schema', name: 'n', schema: { a: 1 }, strict: true } } },
      {
        response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { a: 1 }, strict: true } },
      },
    ],
    ...Object.entries({ none: 'low', minimal: 'low', medium: 'medium', xhigh: 'high', max: 'high' }).map(
      ([effort, known]): [string, Json, Json] => [
        `effort ${effort}`,
        { reasoning: { effort, summary: 'auto', context: 'all' } },
        { reasoning_effort: known },
      ],
    ),
    [
      'members for the gateway alone, which it leaves out',
      {
        ...{ metadata: { a: 'CANARY' }, client_metadata: { cwd: 'CANARY' }, prompt_cache_key: 'CANARY' },
        ...{
          prompt_cache_retention: '24h',
          prompt_cache_options: {},
          include: ['reasoning.encrypted_content'],
        },
        ...{ truncation: 'disabled', top_logprobs: 0, store: true, background: false, moderation: {} },
      },
      {},
    ],
    [
      'nulls',
      {
        ...{ previous_response_id: null, tools: null, tool_choice: null, temperature: null, include: null },
        ...{ text: { format: null }, reasoning: { effort: null }, stream: null, stream_options: null },
      },
      {},
    ],
    [
      'nulls of a tool',
      { tools: [{ type: 'function', name: 'f', parameters: null, description: null, strict: null }] },
      { tools: [{ type: 'function', function: { name: 'f' } }] },
    ],
  ];
  for (const [name, request, expected] of MEMBERS) {
    it(`translates ${name}`, () => {
      assert.deepEqual(chatOf(request), {
        model: 'm',
        messages: [{ role: 'user', content: 'hi' }],
        ...expected,
      });
    });
  }

  const user = { role: 'user', content: 'hi' };
  const INPUTS: readonly [name: string, request: Json, messages: Json[]][] = [
    [
      'instructions with the leading developer and system messages',
      {
        instructions: 'A',
        input: [says('developer', 'B'), says('system', [{ type: 'input_text', text: 'C' }]), user],
      },
      [{ role: 'system', content: 'A\n\nB\n\nC' }, user],
    ],
    [
      'text and image parts',
      { input: [says('user', [{ type: 'input_text', text: 'a' }, IMAGE])] },
      [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'a' },
            { type: 'image_url', image_url: { url: IMAGE.image_url, detail: 'high' } },
          ],
        },
      ],
    ],
    [
      'a message of one part',
      { input: [says('assistant', [{ type: 'refusal', refusal: 'no' }])] },
      [{ role: 'assistant', content: 'no' }],
    ],
    [
      'calls, which share a message',
      { input: [says('assistant', 'a'), call(), call({ call_id: 'c2', namespace: 'n' })] },
      [{ role: 'assistant', content: 'a', tool_calls: [chatCall('f', '{}'), chatCall('n__f', '{}', 'c2')] }],
    ],
    [
      'a custom call',
      { input: [{ type: 'custom_tool_call', call_id: 'c1', name: 'p', input: '"x"' }] },
      [{ role: 'assistant', tool_calls: [chatCall('p', '{"input":"\\"x\\""}')] }],
    ],
    [
      'reasoning in encrypted_content',
      {
        input: [
          { type: 'reasoning', summary: [], encrypted_content: writeReasoning('deep \ud800') },
          says('assistant', 'a'),
        ],
      },
      [{ role: 'assistant', reasoning: 'deep \ud800', reasoning_content: 'deep \ud800', content: 'a' }],
    ],
    [
      'reasoning of another service, which it leaves out',
      { input: [{ type: 'reasoning', summary: [], encrypted_content: 'gAAAA' }, says('assistant', 'a')] },
      [{ role: 'assistant', content: 'a' }],
    ],
    [
      'a tool search',
      {
        input: [
          { type: 'tool_search_call', call_id: 'c1', execution: 'client', arguments: { q: 1 } },
          { type: 'tool_search_output', call_id: 'c1', execution: 'client', tools: [fn('g')] },
        ],
      },
      [
        { role: 'assistant', tool_calls: [chatCall('tool_search', '{"q":1}')] },
        { role: 'tool', tool_call_id: 'c1', content: '{"tools":["g"]}' },
      ],
    ],
  ];
  for (const [name, request, messages] of INPUTS) {
    it(`translates the input: ${name}`, () => assert.deepEqual(chatOf(request)['messages'], messages));
  }

  it('translates tools, and leaves out hosted ones', () => {
    const format = { type: 'grammar', syntax: 'lark', definition: 'start: "x"' };
    const { chat, hosted, context } = translated({
      tools: [
        { ...namespace('mcp__files', [fn('read'), custom('patch')]), description: 'd' },
        custom('apply', { description: 'D', format }),
        fn('plain', { strict: false, description: 'P' }),
        { type: 'tool_search', execution: 'client', description: 'S', parameters: { type: 'object' } },
        { type: 'tool_search' },
        { type: 'web_search' },
      ],
      input: [
        { type: 'additional_tools', role: 'developer', tools: [fn('later'), fn('plain')] },
        says('user', 'x'),
      ],
    });
    const { tools } = JSON.parse(chat.toString());
    assert.deepEqual(
      tools.map((tool: Json) => tool['function'].name),
      ['mcp__files__read', 'mcp__files__patch', 'apply', 'plain', 'tool_search', 'later'],
    );
    assert.match(tools[2].function.description, /^D\n\n.* lark grammar:\nstart: "x"$/);
    assert.deepEqual(tools[2].function.parameters.required, ['input']);
    assert.deepEqual(hosted, ['tool_search', 'web_search']);
    assert.deepEqual(context.origins.get('mcp__files__patch'), {
      kind: 'custom',
      name: 'patch',
      namespace: 'mcp__files',
    });
  });

  it('gives every tool a chat name that maps back to the tool and is the same in every request', () => {
    const names = [
      ...['a', 'x'.repeat(80), `${'x'.repeat(79)}y`, 'with.dot', 'with_dot', '__proto__', 'constructor'],
      '\ud800',
    ];
    const functions = names.map((name) => fn(name));
    const tools = [namespace('a', functions), fn('a__a'), custom('a__a'), ...functions];
    const { chat, context } = translated({ tools });
    const used: string[] = JSON.parse(chat.toString()).tools.map((tool: Json) => tool['function'].name);
    assert.equal(new Set(used).size, tools.length - 1 + names.length);
    for (const name of used) assert.match(name, /^[\w-]{1,64}$/);
    assert.deepEqual(context.origins.get('a__a'), { kind: 'function', name: 'a__a' });
    assert.deepEqual(
      new Set(used.map((name) => context.origins.get(name)?.name)),
      new Set([...names, 'a__a']),
    );
    assert.deepEqual(chatOf({ tools })['tools'], JSON.parse(chat.toString()).tools);
  });

  const CHOICES: readonly [choice: unknown, expected: unknown, names: string[]][] = [
    ['none', 'none', ['f', 'n__f', 'c']],
    ['required', 'required', ['f', 'n__f', 'c']],
    [{ type: 'function', name: 'f' }, { type: 'function', function: { name: 'f' } }, ['f', 'n__f', 'c']],
    [custom('c'), { type: 'function', function: { name: 'c' } }, ['f', 'n__f', 'c']],
    [
      {
        type: 'allowed_tools',
        mode: 'required',
        tools: [custom('c'), { type: 'namespace', name: 'n' }],
      },
      'required',
      ['n__f', 'c'],
    ],
  ];
  for (const [tool_choice, expected, names] of CHOICES) {
    it(`translates the tool_choice ${JSON.stringify(tool_choice)}`, () => {
      const chat = chatOf({
        tool_choice,
        tools: [fn('f'), namespace('n', [fn('f')]), custom('c')],
      });
      assert.deepEqual(chat['tool_choice'], expected);
      assert.deepEqual(
        chat['tools'].map((tool: Json) => tool['function'].name),
        names,
      );
    });
  }

  const REFUSALS: readonly [param: string, request: Json, code?: string][] = [
    ...[
      ...['previous_response_id', 'conversation', 'prompt', 'context_management', 'max_tool_calls'],
      ...['access_programs', 'made_up', 'n', 'image', 'messages', 'constructor'],
    ].map((name): [string, Json] => [name, { [name]: 'CANARY' }]),
    ['made_up', { made_up: null }],
    ['background', { background: true }],
    ['truncation', { truncation: 'auto' }],
    ['top_logprobs', { top_logprobs: 1 }],
    ['include', { include: ['message.output_text.logprobs'] }],
    ['request', { 'CANARY \n': 1 }],
    ['input', { input: [] }, 'missing_required_parameter'],
    ['input', { input: 7 }, 'invalid_value'],
    ['input[0]', { input: ['CANARY'] }, 'invalid_value'],
    ['input[0].content[0].file_id', { input: [says('user', [{ type: 'input_image', file_id: 'f' }])] }],
    ['input[0].role', { input: [says('critic', 'x')] }, 'invalid_value'],
    ['input[0].call_id', { input: [call({ call_id: null })] }, 'invalid_value'],
    ['input[0].execution', { input: [{ type: 'tool_search_call', call_id: null, arguments: {} }] }],
    ['tools[0].tools[0]', { tools: [namespace('n', [{ type: 'web_search' }])] }],
    ['tool_choice', { tool_choice: { type: 'web_search' }, tools: [{ type: 'web_search' }] }],
    [
      'tool_choice.tools[0]',
      { tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'mcp', server_label: 'x' }] } },
    ],
    ['tool_choice', { tool_choice: { type: 'function', name: 'gone' } }, 'invalid_value'],
    ['tool_choice', { tool_choice: 'required', tools: [{ type: 'web_search' }] }, 'invalid_value'],
    ['temperature', { temperature: 'CANARY' }, 'invalid_value'],
    ...[1.5, -1, 2 ** 53].map((max_output_tokens): [string, Json, string] => [
      'max_output_tokens',
      { max_output_tokens },
      'invalid_value',
    ]),
    ['metadata', { metadata: [] }, 'invalid_value'],
    ['reasoning.effort', { reasoning: { effort: 'CANARY' } }, 'invalid_value'],
    ['text.format.type', { text: { format: { type: 'grammar' } } }, 'invalid_value'],
  ];
  /** The error object that the client gets, which repeats nothing of the request. */
  function refusalOf(request: Json): Json {
    try {
      translated(request);
    } catch (thrown) {
      assert.ok(thrown instanceof RequestRefusal);
      const { status, body } = errorResponse(thrown, { format: 'openai', requestId: 'r-1' });
      const { error } = JSON.parse(body.toString());
      assert.deepEqual([status, error.type], [400, 'invalid_request_error']);
      assert.match(error.message, /\. [A-Z].*\. \(request id r-1\)$/);
      assert.doesNotMatch(error.message, /CANARY|toString|__proto__/);
      return error;
    }
    assert.fail('it was translated');
  }
  for (const [param, request, code = 'unsupported_parameter'] of REFUSALS) {
    it(`refuses ${JSON.stringify(request).slice(0, 90)}`, () => {
      const error = refusalOf(request);
      assert.deepEqual([error['param'], error['code']], [param, code]);
    });
  }

  const part = (more: Json) => [says('user', [{ type: 'input_text', text: '' }, more])];
  const NAMED: readonly [param: string, input: readonly Json[], named: RegExp][] = [
    ['input[0].type', [{ type: 'item_reference', id: 'CANARY' }], / of type item_reference /],
    ['input[0].type', [{ type: 'CANARY' }], / of an unknown type /],
    ['input[0].type', [{ type: '__proto__' }], / of an unknown type /],
    ['input[0].content[1].type', part({ type: 'input_file' }), / of type input_file /],
    ['input[0].content[1].type', part({ type: 'CANARY' }), / of an unknown type /],
    ['input[0].output', [{ type: 'function_call_output', call_id: 'c', output: {} }], /string/],
  ];
  for (const [param, input, named] of NAMED) {
    it(`says what it refuses, if that is a word of the API: ${JSON.stringify(input)}`, () => {
      const error = refusalOf({ input });
      assert.equal(error['param'], param);
      assert.match(error['message'], named);
    });
  }

  it('sends no phase, ids or unknown members of the client to the service', () => {
    const caller = { type: 'program', caller_id: 'CANARY' };
    const ids = { id: 'CANARY', status: 'CANARY', phase: 'CANARY', caller, x: 'CANARY' };
    const { chat } = translated({
      input: [
        { ...says('user', [{ type: 'input_text', text: 'a', x: 'CANARY' }]), ...ids },
        { ...call(), ...ids },
      ],
      tools: [fn('f', { x: 'CANARY', output_schema: { a: 'CANARY' } })],
    });
    assert.doesNotMatch(chat.toString(), /CANARY/);
  });

  for (const body of ['', '[]', 'null', '{"a":', '{"a":1}x', Buffer.from([0x22, 0xff, 0x22])]) {
    it(`refuses ${body.toString()}, which is no JSON object`, () => {
      const invalid = { code: 'invalid_json', status: 400 };
      assert.throws(() => translateRequest(Buffer.from(body as string)), invalid);
    });
  }

  const ODD =
    '{"maximum" : 18446744073709551615,\r\n "a": 1e400, "b":-1.5e-7, "c":0.12345678901234567890,"\\u0061b":"\\/\\ud800"}';
  const EXACT =
    '{"maximum":18446744073709551615,"a":1e400,"b":-1.5e-7,"c":0.12345678901234567890,"ab":"/\\ud800"}';
  const BIG = '18446744073709551615';
  const IN_PLACE_OF: readonly [param: string, members: string][] = [
    ['input[0]', `"input":[${BIG}]`],
    ['input[0].call_id', `"input":[{"type":"custom_tool_call","name":"f","input":"","call_id":${BIG}}]`],
    ['tools[0].parameters', `"tools":[{"type":"function","name":"f","parameters":${BIG}}],"input":"x"`],
  ];
  for (const [param, members] of IN_PLACE_OF) {
    it(`takes a number that no double holds for nothing else: ${members}`, () => {
      assert.throws(
        () => translateRequest(Buffer.from(`{"model":"m",${members}}`)),
        (thrown: unknown) => thrown instanceof RequestRefusal && thrown.api!.param!.startsWith(param),
      );
    });
  }

  it('passes each number that no double holds on as it was written, in chat and in the Response', () => {
    const tool = (name: string) => `{"type":"function","name":"${name}","parameters":${ODD}}`;
    const input = `[{"type":"additional_tools","tools":[${tool('g')}]},{"role":"user","content":"x"}]`;
    const text = `{"format":{"type":"json_schema","name":"n","schema":${ODD}}}`;
    for (const number of ['0', '0.7', '0.30000000000000004', '1e3', '1e400', '9007199254740993', BIG]) {
      const members = `"text":${text},"metadata":${ODD},"temperature":${number},"top_p":0.70`;
      const request = `{"model":"m","tools":[${tool('f')}],"input":${input},${members}}`;
      const { chat, context } = translateRequest(Buffer.from(request));
      assert.equal(chat.toString().split(EXACT).length - 1, 3);
      assert.ok(context.echo.includes(`"metadata":${EXACT}`));
      for (const made of [chat.toString(), context.echo]) {
        assert.ok(made.includes(`"temperature":${number},`) && made.includes('"top_p":0.7,'));
      }
    }
  });

  it('passes the arguments of a tool search on as a string, with their numbers as they were written', () => {
    const search = '{"type":"tool_search_call","call_id":"c","execution":"client","arguments":';
    for (const [args, sent] of [
      [ODD, EXACT],
      ['[1.5]', '{"invalid_arguments":[1.5]}'],
      [BIG, `{"invalid_arguments":${BIG}}`],
      ['false', '{"invalid_arguments":false}'],
    ] as const) {
      const { chat } = translateRequest(Buffer.from(`{"model":"m","input":[${search}${args}}]}`));
      const [{ tool_calls: calls }] = JSON.parse(chat.toString()).messages;
      assert.equal(calls[0].function.arguments, sent);
    }
  });

  /** The arguments that leave for those of an earlier call, and of an earlier search. */
  const argumentsFor = (given: string): readonly string[] =>
    [call(), { type: 'tool_search_call', call_id: 'c', execution: 'client' }].map(
      (item) =>
        chatOf({ input: [{ ...item, arguments: given }] })['messages'][0].tool_calls[0].function.arguments,
    );
  const BROKEN = ['{"cmd":"ls"}}', '{"cmd":"ls"},', '{"a":1', '{"a":1},{"b":2}', '{"a":1}][{}', '{"a":"\n"}'];
  for (const args of [...BROKEN, '"ls"', '[{}]', '1', 'null', ' ', 'ls', '{"a":"\ud83d\ude00\\d"}']) {
    it(`sends arguments of an earlier call that are no JSON object in one: ${JSON.stringify(args)}`, () => {
      const sent = JSON.stringify({ invalid_arguments: args });
      assert.deepEqual(argumentsFor(args), [sent, sent]);
    });
  }
  const WHOLE = ['', '{}', '{"a":{"b":[1.50]}} \n', '{"a":1,"a":2}', '{"__proto__":"\ud83d\ude00\\n"}'];
  for (const args of WHOLE) {
    it(`sends arguments of an earlier call that are empty or a JSON object as they are: ${JSON.stringify(args)}`, () =>
      assert.deepEqual(argumentsFor(args), [args, args]));
  }

  it('makes a chat request that the checks of chat refuse with media_url_refused or missing_model', () => {
    const chat = ENDPOINTS.find(({ id }) => id === 'chat')!;
    const take = (request: Json) => bodyReader(chat, undefined)!(translated(request).chat, {}) as ParsedBody;
    const { model, streaming, choices, usage } = take({ stream: true, max_output_tokens: 5 });
    assert.deepEqual([model, streaming, choices, usage], ['m', true, 1, 'last']);
    const image = { type: 'input_image', image_url: 'file:///etc/passwd' };
    const output = { type: 'function_call_output', call_id: 'c', output: [image] };
    for (const item of [says('user', [image]), output]) {
      assert.throws(() => take({ input: [item] }), { code: 'media_url_refused' });
    }
    assert.throws(() => take({ model: null }), { code: 'missing_model' });
  });

  it('passes a member "__proto__" on like any other, and changes no prototype', () => {
    const request =
      '{"model":"m","input":"x","metadata":{"__proto__":{"a":1}},"tools":[{"type":"function","name":"f","parameters":{"__proto__":{"b":1}}}]}';
    const { chat, context } = translateRequest(Buffer.from(request));
    assert.ok(chat.toString().includes('"parameters":{"__proto__":{"b":1}}'));
    assert.ok(context.echo.includes('"metadata":{"__proto__":{"a":1}}'));
    assert.equal(({} as Json)['a'], undefined);
  });
});

describe('the body of a translated request', () => {
  it('reserves memory for four times its bytes before it is translated', () => {
    const request = Buffer.from(JSON.stringify({ model: 'm', input: 'x\u00e9'.repeat(1000) }));
    const full = new PrivatemodeError('too_many_uploads', 'full');
    const read = createTranslator('r-1').request(() => assert.fail('it was translated'));
    let held = 0;
    const hold = (bytes: number) => {
      held += bytes;
      throw full;
    };
    assert.throws(() => read(request, { hold }), full);
    assert.equal(held, 4 * request.length);
  });
});
