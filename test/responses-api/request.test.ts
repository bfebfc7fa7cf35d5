/** Every row of the request tables of docs/protocol/responses.md. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ENDPOINTS } from '../../lib/api/endpoints.ts';
import { errorResponse } from '../../lib/api/error-response.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { createRequestBody, type ParsedBody } from '../../lib/pipeline/request-body.ts';
import { RequestRefusal } from '../../lib/responses-api/request-refusal.ts';
import { writeReasoning } from '../../lib/responses-api/response-object.ts';
import { RequestTranslation, type TranslatedRequest } from '../../lib/responses-api/translate-request.ts';
import { byteByByte } from '../support/remote/chunkings.ts';
import { chatOf, type Json, translated, translateRequest } from './chat-side.ts';

const call = (more: Json = {}) => ({
  type: 'function_call',
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
const chatCall = (name: string, args: string, id = 'c1') => ({
  id,
  type: 'function',
  function: { name, arguments: args },
});
const says = (role: string, content: unknown) => ({ type: 'message', role, content });
const echoIn = ({ echo }: TranslatedRequest['context']): string => Buffer.from(echo).toString();
const IMAGE = { type: 'input_image', image_url: 'data:image/png;base64,AA==', detail: 'original' };

const kept = (text: string): [string, boolean] => [text, true];
const changed = (text: string): [string, boolean] => [text, false];

describe('the translator of Responses requests', () => {
  const MEMBERS: readonly [name: string, request: Json, chat: Json][] = [
    [
      'members that chat has under the same names',
      { temperature: 0.5, top_p: 0.9, user: 'u', safety_identifier: 's', service_tier: 'auto' },
      { temperature: 0.5, top_p: 0.9, user: 'u', safety_identifier: 's', service_tier: 'auto' },
    ],
    [
      'cache_salt and parallel_tool_calls',
      { cache_salt: 'x'.repeat(32), parallel_tool_calls: false },
      { cache_salt: 'x'.repeat(32), parallel_tool_calls: false },
    ],
    ['top_logprobs', { top_logprobs: 3 }, { top_logprobs: 3, logprobs: true }],
    ['logprobs by include', { include: ['message.output_text.logprobs'] }, { logprobs: true }],
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
    ...[
      ['none', 'low'],
      ['minimal', 'low'],
      ['medium', 'medium'],
      ['xhigh', 'high'],
      ['max', 'high'],
    ].map(([effort, known]): [string, Json, Json] => [
      `effort ${effort}`,
      { reasoning: { effort, summary: 'auto', context: 'all' } },
      { reasoning_effort: known },
    ]),
    [
      'members for the gateway alone, which it leaves out',
      {
        metadata: { a: 'CANARY' },
        truncation: 'disabled',
        include: ['reasoning.encrypted_content'],
        store: true,
        background: false,
        prompt_cache_key: 'CANARY',
        prompt_cache_retention: '24h',
        prompt_cache_options: {},
        client_metadata: { cwd: 'CANARY' },
        moderation: {},
      },
      {},
    ],
    ['nulls', { previous_response_id: null, tools: null, tool_choice: null, temperature: null }, {}],
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
      'a later developer message',
      { input: [user, says('developer', 'B')] },
      [user, { role: 'user', content: '<application_instructions>\nB\n</application_instructions>' }],
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
      'phase and ids, which it leaves out',
      {
        input: [
          {
            ...says('assistant', [{ type: 'output_text', text: 'a', annotations: [] }]),
            phase: 'commentary',
            id: 'msg_1',
            status: 'completed',
          },
        ],
      },
      [{ role: 'assistant', content: 'a' }],
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
      'outputs of tools',
      {
        input: [
          { type: 'function_call_output', id: 'o', call_id: 'c1', output: 'r' },
          { type: 'custom_tool_call_output', call_id: 'c2', output: [{ type: 'input_text', text: 's' }] },
        ],
      },
      [
        { role: 'tool', tool_call_id: 'c1', content: 'r' },
        { role: 'tool', tool_call_id: 'c2', content: 's' },
      ],
    ],
    [
      'reasoning',
      {
        input: [
          {
            type: 'reasoning',
            id: 'rs',
            summary: [],
            content: [{ type: 'reasoning_text', text: 'think' }],
            encrypted_content: 'x',
          },
          call(),
        ],
      },
      [
        {
          role: 'assistant',
          reasoning: 'think',
          reasoning_content: 'think',
          tool_calls: [chatCall('f', '{}')],
        },
      ],
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
    const { body, hosted, context } = translated({
      tools: [
        {
          type: 'namespace',
          name: 'mcp__files',
          description: 'd',
          tools: [fn('read'), { type: 'custom', name: 'patch' }],
        },
        {
          type: 'custom',
          name: 'apply',
          description: 'D',
          format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
        },
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
    const { tools } = JSON.parse(body.toString());
    assert.deepEqual(
      tools.map((tool: Json) => tool['function'].name),
      ['mcp__files__read', 'mcp__files__patch', 'apply', 'plain', 'tool_search', 'later'],
    );
    assert.match(tools[2].function.description, /^D\n\n.* lark grammar:\nstart: "x"$/);
    assert.deepEqual(tools[2].function.parameters.required, ['input']);
    assert.deepEqual(tools[3].function, {
      name: 'plain',
      description: 'P',
      parameters: { type: 'object' },
      strict: false,
    });
    assert.deepEqual(hosted, ['tool_search', 'web_search']);
    assert.deepEqual(context.origins.get('mcp__files__patch'), {
      kind: 'custom',
      name: 'patch',
      namespace: 'mcp__files',
    });
  });

  it('gives every tool a chat name that maps back to the tool and is the same in every request', () => {
    const names = [
      'a',
      'x'.repeat(80),
      `${'x'.repeat(79)}y`,
      'with.dot',
      'with_dot',
      '__proto__',
      'constructor',
      '',
      '\ud800',
    ].filter((name) => name !== '');
    const tools = [
      { type: 'namespace', name: 'a', tools: names.map((name) => fn(name)) },
      fn('a__a'),
      { type: 'custom', name: 'a__a' },
      ...names.map((name) => fn(name)),
    ];
    const { body, context } = translated({ tools });
    const used: string[] = JSON.parse(body.toString()).tools.map((tool: Json) => tool['function'].name);
    assert.equal(new Set(used).size, tools.length - 1 + names.length);
    for (const name of used) assert.match(name, /^[\w-]{1,64}$/);
    assert.deepEqual(context.origins.get('a__a'), { kind: 'function', name: 'a__a' });
    assert.deepEqual(
      new Set(used.map((name) => context.origins.get(name)?.name)),
      new Set([...names, 'a__a']),
    );
    assert.deepEqual(chatOf({ tools })['tools'], JSON.parse(body.toString()).tools);
  });

  const CHOICES: readonly [choice: unknown, expected: unknown, names: string[]][] = [
    ['none', 'none', ['f', 'n__f', 'c']],
    ['required', 'required', ['f', 'n__f', 'c']],
    [{ type: 'function', name: 'f' }, { type: 'function', function: { name: 'f' } }, ['f', 'n__f', 'c']],
    [{ type: 'custom', name: 'c' }, { type: 'function', function: { name: 'c' } }, ['f', 'n__f', 'c']],
    [
      {
        type: 'allowed_tools',
        mode: 'required',
        tools: [
          { type: 'custom', name: 'c' },
          { type: 'namespace', name: 'n' },
        ],
      },
      'required',
      ['n__f', 'c'],
    ],
  ];
  for (const [tool_choice, expected, names] of CHOICES) {
    it(`translates the tool_choice ${JSON.stringify(tool_choice)}`, () => {
      const chat = chatOf({
        tool_choice,
        tools: [fn('f'), { type: 'namespace', name: 'n', tools: [fn('f')] }, { type: 'custom', name: 'c' }],
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
      'previous_response_id',
      'conversation',
      'prompt',
      'context_management',
      'max_tool_calls',
      'access_programs',
      'made_up',
      'n',
      'image',
      'messages',
      'constructor',
    ].map((name): [string, Json] => [name, { [name]: 'CANARY' }]),
    ['made_up', { made_up: null }],
    ['background', { background: true }],
    ['truncation', { truncation: 'auto' }],
    ['request', { 'CANARY \n': 1 }],
    ['input', { input: [] }, 'missing_required_parameter'],
    ['input', { input: 7 }, 'invalid_value'],
    ['input[0]', { input: ['CANARY'] }, 'invalid_value'],
    ...[
      'item_reference',
      'program',
      'configuration_update',
      'web_search_call',
      'mcp_call',
      'compaction',
      'toString',
    ].map((type): [string, Json] => ['input[1].type', { input: [user, { type }] }]),
    ...['input_file', 'input_audio', '__proto__'].map((type): [string, Json] => [
      'input[0].content[1].type',
      { input: [says('user', [{ type: 'input_text', text: '' }, { type }])] },
    ]),
    ['input[0].content[0].file_id', { input: [says('user', [{ type: 'input_image', file_id: 'f' }])] }],
    ['input[0].role', { input: [says('critic', 'x')] }, 'invalid_value'],
    ['input[0].call_id', { input: [call({ call_id: null })] }, 'invalid_value'],
    ['input[0].execution', { input: [{ type: 'tool_search_call', call_id: null, arguments: {} }] }],
    ['tools[0].tools[0]', { tools: [{ type: 'namespace', name: 'n', tools: [{ type: 'web_search' }] }] }],
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
  for (const [param, request, code = 'unsupported_parameter'] of REFUSALS) {
    it(`refuses ${JSON.stringify(request).slice(0, 90)}`, () => {
      assert.throws(
        () => translated(request),
        (thrown: unknown) => {
          assert.ok(thrown instanceof RequestRefusal);
          const refusal = errorResponse(thrown, { format: 'openai', requestId: 'r-1' });
          const { error } = JSON.parse(refusal.body.toString());
          assert.deepEqual(
            [thrown.status, error.type, error.param, error.code],
            [400, 'invalid_request_error', param, code],
          );
          assert.match(error.message, /\. [A-Z].*\. \(request id r-1\)$/);
          assert.doesNotMatch(error.message, /CANARY/);
          return true;
        },
      );
    });
  }

  it('sends no metadata, ids or unknown members of the client to the service', () => {
    const ids = {
      id: 'CANARY',
      status: 'CANARY',
      caller: { type: 'program', caller_id: 'CANARY' },
      x: 'CANARY',
    };
    const { body } = translated({
      metadata: { a: 'CANARY' },
      client_metadata: { a: 'CANARY' },
      input: [
        { ...says('user', [{ type: 'input_text', text: 'a', x: 'CANARY' }]), ...ids },
        { ...call(), ...ids },
      ],
      tools: [fn('f', { x: 'CANARY', output_schema: { a: 'CANARY' } })],
    });
    assert.doesNotMatch(body.toString(), /CANARY/);
  });

  for (const body of ['', '[]', 'null', '{"a":', '{"a":1}x', Buffer.from([0x22, 0xff, 0x22])]) {
    it(`refuses ${body.toString()}, which is no JSON object`, () => {
      assert.throws(() => translateRequest(Buffer.from(body as string)), {
        code: 'invalid_json',
        status: 400,
      });
    });
  }

  it('passes on JSON of 9,990 levels, and refuses 10,000 levels with invalid_json', () => {
    const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`;
    const request = (deep: string) =>
      Buffer.from(
        `{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":{"a":${deep}}}]}`,
      );
    const deep = nested(9_990);
    assert.ok(translateRequest(request(deep)).body.includes(deep));
    assert.throws(() => translateRequest(request(nested(10_000))), { code: 'invalid_json' });
  });

  const ODD = '{"maximum" : 18446744073709551615,\r\n "a": 1.0, "b":1e400, "a":-0.10,"\\u0061":"\\/\\ud800"}';
  const PASSED_ON: readonly [what: string, request: string, times?: number][] = [
    ['the parameters of a tool', `"tools":[{"type":"function","name":"f","parameters":${ODD}}]`],
    [
      'the parameters of a tool in a namespace',
      `"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":${ODD}}]}]`,
    ],
    [
      'the parameters of an additional tool',
      `"input":[{"type":"additional_tools","tools":[{"type":"function","name":"f","parameters":${ODD}}]},{"role":"user","content":"x"}]`,
    ],
    [
      'the parameters of a search',
      `"tools":[{"type":"tool_search","execution":"client","parameters":${ODD}}]`,
    ],
    ['a JSON schema', `"text":{"format":{"type":"json_schema","name":"n","schema":${ODD}}}`],
  ];
  for (const [what, members] of PASSED_ON) {
    it(`passes ${what} on as the bytes that came`, () => {
      const input = members.startsWith('"input"') ? '' : '"input":"x",';
      const { body } = translateRequest(Buffer.from(`{"model":"m",${input}${members}}`));
      assert.equal(body.toString().split(ODD).length - 1, 1);
    });
  }

  it('repeats metadata and numbers of the request in the Response as they came, on one line', () => {
    const request = `{"model":"m","input":"x","metadata":${ODD},"temperature":0.70}`;
    const echo = echoIn(translateRequest(Buffer.from(request)).context);
    assert.ok(echo.includes(`"metadata":${ODD.replace('\r\n', '  ')}`));
    assert.ok(echo.includes('"temperature":0.70,'));
    assert.doesNotMatch(echo, /[\r\n]/);
  });

  it('passes the arguments of a tool search on as a string of their exact text', () => {
    const call = '{"type":"tool_search_call","call_id":"c","execution":"client","arguments":';
    for (const args of [ODD, ODD.replace('{', `{${' '.repeat(100_000)}`)]) {
      const { body } = translateRequest(Buffer.from(`{"model":"m","input":[${call}${args}}]}`));
      const [{ tool_calls: calls }] = JSON.parse(body.toString()).messages;
      assert.equal(calls[0].function.arguments, args);
    }
    for (const args of ['[1.50]', '18446744073709551615', 'false']) {
      const { body } = translateRequest(Buffer.from(`{"model":"m","input":[${call}${args}}]}`));
      const [{ tool_calls: calls }] = JSON.parse(body.toString()).messages;
      assert.equal(calls[0].function.arguments, `{"invalid_arguments":${args}}`);
    }
  });

  /** The arguments that leave for those of an earlier call: as they are, and behind many blanks. */
  const argumentsFor = (args: string): (readonly [given: string, sent: string])[] =>
    [args, `${' '.repeat(200_000)}${args}`].flatMap((given) =>
      [
        call({ arguments: given }),
        { type: 'tool_search_call', call_id: 'c', execution: 'client', arguments: given },
      ].map((item) => [
        given,
        chatOf({ input: [item] })['messages'][0].tool_calls[0].function.arguments as string,
      ]),
    );
  const BROKEN = ['{"cmd":"ls"}}', '{"cmd":"ls"},', '{"a":1', '{"a":1},{"b":2}', '{"a":1}][{}', '{"a":"\n"}'];
  for (const args of [...BROKEN, '"ls"', '[{}]', '1', 'null', ' ', 'ls', '{"a":"\ud83d\ude00\\d"}']) {
    it(`sends arguments of an earlier call that are no JSON object in one: ${JSON.stringify(args)}`, () => {
      for (const [given, sent] of argumentsFor(args))
        assert.ok(sent === JSON.stringify({ invalid_arguments: given }), sent.slice(-100));
    });
  }
  for (const args of ['{}', '{"a":{"b":[1.50]}} \n', '{"a":1,"a":2}', '{"__proto__":"\ud83d\ude00\\n"}']) {
    it(`sends arguments of an earlier call that are a JSON object as they are: ${JSON.stringify(args)}`, () => {
      for (const [given, sent] of argumentsFor(args)) assert.ok(sent === given, sent.slice(-100));
    });
  }

  it('sends empty arguments of an earlier call as they are', () => {
    assert.equal(argumentsFor('')[0]?.[1], '');
  });

  it('writes the input of a custom tool with the necessary escapes only, whatever escapes the client used', () => {
    for (const unit of ['\u00e9', '\ud83d\ude00', '\\', 'a\n', '\ud800']) {
      const input = `x${unit.repeat(100_000)}`;
      const plain = JSON.stringify({ type: 'custom_tool_call', call_id: 'c', name: 'p', input });
      const ascii = plain.replace(
        /[^\x20-\x7e]/g,
        (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
      for (const item of [plain, ascii]) {
        const { body } = translateRequest(Buffer.from(`{"model":"m","input":[${item}]}`));
        const [{ tool_calls: calls }] = JSON.parse(body.toString()).messages;
        assert.ok(calls[0].function.arguments === JSON.stringify({ input }), unit);
      }
    }
  });

  it('writes the input of a custom tool whole wherever half a surrogate pair and backslashes lie at the cut', () => {
    const rest = `\\ud800Xu123${'\\\\'.repeat(40)}`;
    for (let before = 65_536 - rest.length; before <= 65_536; before++) {
      const input = `"${'x'.repeat(before)}${rest}"`;
      const item = `{"type":"custom_tool_call","call_id":"c","name":"p","input":${input}}`;
      const { body } = translateRequest(Buffer.from(`{"model":"m","input":[${item}]}`));
      const [{ tool_calls: calls }] = JSON.parse(body.toString()).messages;
      assert.ok(calls[0].function.arguments === `{"input":${input}}`, String(before));
    }
  });

  it('passes on long texts unchanged in every member that can hold one', () => {
    const text = `\u00e9"\\\n\ud83d\ude00${'x'.repeat(5_000)}`;
    const args = JSON.stringify({ text });
    const custom = { type: 'custom', name: 'p', description: text };
    const grammar = { type: 'grammar', syntax: 'lark', definition: text };
    const { messages, tools } = chatOf({
      instructions: text,
      tools: [{ ...custom, format: grammar }, fn('f', { description: text })],
      input: [
        says('developer', [
          { type: 'input_text', text },
          { type: 'input_text', text },
        ]),
        says('user', text),
        says('developer', text),
        { type: 'reasoning', content: [{ type: 'reasoning_text', text }, text] },
        { type: 'reasoning', encrypted_content: writeReasoning(text) },
        call({ arguments: args, call_id: text }),
        { type: 'custom_tool_call', call_id: 'c2', name: 'p', input: text },
        { type: 'function_call_output', call_id: text, output: text },
      ],
    });
    const thought = `${text}\n${text}\n${text}`;
    const assistant = {
      role: 'assistant',
      reasoning: thought,
      reasoning_content: thought,
      tool_calls: [chatCall('f', args, text), chatCall('p', JSON.stringify({ input: text }), 'c2')],
    };
    assert.deepEqual(messages, [
      { role: 'system', content: `${text}\n\n${text}\n${text}` },
      { role: 'user', content: text },
      {
        role: 'user',
        content: `<application_instructions>\n${text}\n</application_instructions>`,
      },
      assistant,
      { role: 'tool', tool_call_id: text, content: text },
    ]);
    const described = `${text}\n\nThe input has to match this lark grammar:\n${text}`;
    assert.equal(tools[0].function.description, described);
    assert.equal(tools[1].function.description, text);
  });

  const NUMBERS: readonly [text: string, kept: boolean][] = [
    ...[
      '0',
      '-0.0',
      '2.0',
      '1e3',
      '0.7',
      '0.70',
      '1e-3',
      '2E0',
      '1.5e+0',
      '0.30000000000000004',
      '5e-324',
    ].map(kept),
    ...['0.69999999999999996', '9007199254740992', '18446744073709551616', '0.699999988079071'].map(kept),
    ...['1e400', '-1e400', '1e-400', '18446744073709551615', '9007199254740993'].map(changed),
    ...['0.70000000000000000001', `0.${'1'.repeat(101)}`, `1${'0'.repeat(500_000)}`].map(changed),
  ];
  for (const [text, isKept] of NUMBERS) {
    it(`${isKept ? 'keeps' : 'refuses'} the number ${text.slice(0, 30)} as the value of a member`, () => {
      const isCount = !isKept || Number.isSafeInteger(Number(text));
      for (const name of [
        'temperature',
        'top_p',
        'top_logprobs',
        ...(isCount ? ['max_output_tokens'] : []),
      ]) {
        const translate = () => translateRequest(Buffer.from(`{"model":"m","input":"x","${name}":${text}}`));
        if (!isKept) assert.throws(translate, { code: 'not_supported', status: 400 }, name);
        else assert.match(translate().body.toString(), new RegExp(`:${text.replace('+', '\\+')}[,}]`));
      }
    });
  }

  const MIB = 1024 * 1024;
  const saysText = (bytes: number) =>
    says('user', 'x'.repeat(bytes - JSON.stringify(says('user', '')).length));

  it('makes the same chat request if the body arrives byte by byte', () => {
    const request = {
      instructions: 'I \u00e9',
      input: [user, call(), says('developer', 'D')],
      tools: [fn('f')],
    };
    const whole = translated(request).body.toString();
    const translation = new RequestTranslation();
    for (const byte of byteByByte(Buffer.from(JSON.stringify({ model: 'm', ...request }))))
      translation.feed(byte);
    assert.equal(Buffer.concat([...translation.pieces()]).toString(), whole);
  });

  it('translates in steps of at most one item, so that other requests can run in between', () => {
    const translation = new RequestTranslation();
    const input = Array.from({ length: 100 }, () => saysText(300_000));
    const body = Buffer.from(JSON.stringify({ model: 'm', tools: [fn('f')], input }));
    for (let at = 0; at < body.length; at += 65_536) translation.feed(body.subarray(at, at + 65_536));
    let since = 0;
    for (const { length } of translation.pieces()) {
      assert.ok(length <= 65_536, String(length));
      since = length === 0 ? since + 1 : 0;
      assert.ok(since < 12, 'a piece or two for each item');
    }
  });

  it('never parses or writes in one go a request, its long texts, or all calls of one message', (t) => {
    let longest = 0;
    const { parse, stringify } = JSON;
    t.mock.method(JSON, 'parse', (text: string) => {
      longest = Math.max(longest, text.length);
      return parse(text);
    });
    const calls = Array.from({ length: 3_000 }, () => call({ arguments: `"${'x'.repeat(300)}` }));
    const body = stringify({
      ...{ model: 'm', instructions: 'i\n'.repeat(100_000) },
      tools: [fn('f', { parameters: { enum: Array(50_000).fill('\n') } })],
      input: [
        saysText(300_000),
        ...calls,
        { type: 'custom_tool_call', call_id: 'c', name: 'p', input: '"'.repeat(1e5) },
      ],
    });
    t.mock.method(JSON, 'stringify', (value: unknown) => {
      const text = stringify(value);
      longest = Math.max(longest, text?.length ?? 0);
      return text;
    });
    translateRequest(Buffer.from(body));
    t.mock.restoreAll();
    assert.ok(longest < 140_000, String(longest)); // twice a piece of 64 KiB, which needs escapes
  });

  it('reserves memory for bytes before it creates them, and none for bytes that it passes on', () => {
    const long = 'x'.repeat(100_000);
    const request = Buffer.from(
      JSON.stringify({
        ...{ model: 'm', metadata: { a: long } },
        input: [
          ...Array.from({ length: 1_000 }, () => call({ arguments: 'y'.repeat(500) })),
          says('user', long),
          { type: 'custom_tool_call', call_id: 'c', name: 'p', input: '"'.repeat(50_000) },
          { type: 'reasoning', encrypted_content: writeReasoning(long) },
          says('assistant', long),
        ],
      }),
    );
    const translation = new RequestTranslation();
    translation.feed(request);
    let held = 0;
    let made = 0;
    const pieces = translation.pieces((bytes) => {
      held += bytes;
    });
    for (let next = pieces.next(); ; next = pieces.next()) {
      if (next.done) {
        made += next.value.context.echo.length;
        break;
      }
      if (next.value.buffer !== request.buffer) made += next.value.length;
      assert.ok(held >= made, `${made} bytes were made, ${held} reserved`);
    }
    assert.ok(made > 1_000_000 && held >= made, `${made}, ${held}`);
    assert.ok(held < made + 500_000, `${held} of ${made}`);
    const refusing = new RequestTranslation();
    refusing.feed(request);
    const full = () => {
      throw new PrivatemodeError('too_many_uploads', 'full');
    };
    assert.throws(() => [...refusing.pieces(full)], { code: 'too_many_uploads' });
  });

  const strings = (count: number) => Array.from({ length: count }, () => '');
  const numbers = (count: number) => Array.from({ length: count }, () => 0);
  const text = (bytes: number) => ({ type: 'input_text', text: 'x'.repeat(bytes) });
  const schema = (value: unknown) => ({ tools: [fn('f', { parameters: { a: value } })] });
  const repeated = (bytes: number) => ({ a: Array.from({ length: 8 }, () => 'x'.repeat(bytes / 8)) });
  const SIZES: readonly [name: string, param: string, accepted: Json, refused: Json][] = [
    [
      'a text of 8 MiB',
      'input[1]',
      { input: [user, says('user', [text(8 * MIB), text(8 * MIB)])] },
      { input: [user, says('user', [text(8 * MIB + 1)])] },
    ],
    [
      'instructions of 8 MiB',
      'instructions',
      { instructions: 'x'.repeat(8 * MIB) },
      { instructions: 'x'.repeat(8 * MIB + 1) },
    ],
    ...[strings, numbers].flatMap((values): [string, string, Json, Json][] => [
      [
        `an item of 100,000 ${values.name}`,
        'input[1]',
        {
          input: [
            { ...user, x: values(99_000) },
            { ...user, x: values(99_000) },
          ],
        },
        { input: [user, { ...user, x: values(100_000) }] },
      ],
      [`a member of 100,000 ${values.name}`, 'tools', schema(values(99_000)), schema(values(100_000))],
      [
        `metadata of 100,000 ${values.name}`,
        'metadata',
        { metadata: { a: values(99_000) } },
        { metadata: { a: values(100_000) } },
      ],
    ]),
    [
      'an item of 1 MiB beside its strings',
      'input[0]',
      { input: [{ ...user, x: { ['k'.repeat(1_000_000)]: 'v'.repeat(1_000_000) } }] },
      { input: [{ ...user, x: { ['k'.repeat(MIB)]: 1 } }] },
    ],
    [
      '32 MiB of metadata that responses repeat',
      'request',
      { metadata: repeated(31 * MIB) },
      { metadata: repeated(32 * MIB) },
    ],
    [
      'input of 100,000 items',
      'input',
      { input: Array(100_000).fill(user) },
      { input: Array(100_001).fill(user) },
    ],
  ];
  for (const [name, param, accepted, refused] of SIZES) {
    it(`accepts ${name}, and refuses more`, () => {
      assert.doesNotThrow(() => translated(accepted));
      assert.throws(
        () => translated(refused),
        ({ code, status, api }) => {
          assert.deepEqual([code, status, api.param], ['body_too_large', 413, param]);
          return true;
        },
      );
    });
  }

  it('refuses more than 1 MiB of blanks, or a number of more than 1 MiB of digits, in an item', () => {
    for (const value of [`{${' '.repeat(MIB)}}`, '1'.repeat(MIB + 1)]) {
      const body = Buffer.from(`{"model":"m","input":[{"role":"user","content":"x","a":${value}}]}`);
      assert.throws(() => translateRequest(body), { code: 'body_too_large' });
    }
  });

  it('refuses a duplicate member, of which the service would read the first and others the last', () => {
    assert.throws(() => translateRequest(Buffer.from('{"model":"m","input":"a","input":"b"}')), {
      code: 'duplicate_member',
    });
  });

  it('makes a chat request that the checks of chat refuse with media_url_refused or missing_model', () => {
    const chat = ENDPOINTS.find(({ id }) => id === 'chat')!;
    const take = (request: Json) => {
      const body = createRequestBody(chat, undefined, undefined)!;
      body.feed(translated(request).body);
      return body.finish() as ParsedBody;
    };
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
    const { body, context } = translateRequest(Buffer.from(request));
    assert.ok(body.toString().includes('"parameters":{"__proto__":{"b":1}}'));
    assert.ok(echoIn(context).includes('"metadata":{"__proto__":{"a":1}}'));
    assert.equal(({} as Json)['a'], undefined);
  });
});
