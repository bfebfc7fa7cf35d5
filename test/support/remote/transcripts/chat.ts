/** Chat completions. */
import {
  CREATED,
  DONE,
  errorEvent,
  forVersions,
  type Members,
  MODEL,
  type Row,
  SERVED_MODEL,
  since,
  stream,
  type Transcript,
  type TranscriptEvent,
  usage,
  type Version,
  whole,
  wholeUsage,
} from './transcript.ts';

const ID = 'chatcmpl-8f0c3a5e9b7d4c21';
const PROMPT_TOKENS = 11;
const MESSAGES = [{ role: 'user', content: 'Say something.' }];

const asked = (more: Members = {}): Members => ({ model: MODEL, messages: MESSAGES, ...more });
const streamed = (more: Members = {}): Members => asked({ stream: true, ...more });

/** The choice of one chunk, and members that stand beside `choices`, before usage and behind it. */
interface Step {
  readonly choice: Members;
  readonly before?: Members;
  readonly after?: Members;
}

const role = (index = 0, after: Members = { prompt_token_ids: null }): Step => ({
  choice: { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
  after,
});

const delta = (value: Members, index = 0, more: Members = { token_ids: null }): Step => ({
  choice: { index, delta: value, logprobs: null, finish_reason: null, ...more },
});

const content = (text: string, index = 0): Step => delta({ content: text }, index);

const finish = (reason: string, index = 0, stopReason: number | string | null = null): Step => ({
  choice: {
    index,
    delta: { content: '' },
    logprobs: null,
    finish_reason: reason,
    stop_reason: stopReason,
    token_ids: null,
  },
});

const METRICS = { time_to_first_token_ms: 41.5, generation_time_ms: 812.25, queue_time_ms: 0.5 };

interface Frame {
  readonly model?: string;
  /** Members of the closing chunk, behind its usage. */
  readonly closing?: Members;
}

const head = (model: string): Members => ({
  id: ID,
  object: 'chat.completion.chunk',
  created: CREATED,
  model,
});

/** The chunks of a stream: usage in each, as the service forces it; how many tokens is counted per choice. */
function chunks(version: Version, steps: readonly Step[], { model = MODEL }: Frame): TranscriptEvent[] {
  const counts = new Map<unknown, number>();
  return steps.map(({ choice, before = {}, after = {} }) => {
    const { index, finish_reason: reason, delta: value } = choice;
    const isRole = Object.hasOwn(value as Members, 'role');
    const count = (counts.get(index) ?? 0) + (isRole || reason !== null ? 0 : 1);
    counts.set(index, count);
    // From 0.33 on, every chunk but that of the role says so, null as it is.
    const transfer = since(version, '0.33') && !isRole ? { kv_transfer_params: null } : {};
    const counted = { usage: usage(PROMPT_TOKENS, count) };
    return { data: { ...head(model), choices: [choice], ...before, ...counted, ...after, ...transfer } };
  });
}

const tokensOf = (steps: readonly Step[]): number =>
  steps.filter(
    ({ choice }) => choice['finish_reason'] === null && !Object.hasOwn(choice['delta'] as Members, 'role'),
  ).length;

/** From 0.26 on the closing chunk, the last of the stream, names the build that answered. */
const fingerprint = (version: Version): Members =>
  since(version, '0.26') ? { system_fingerprint: `vllm-${version}.0-tp8-3f1c9a70` } : {};

/** A whole stream: the steps, the closing chunk and the end. */
function streamOf(
  version: Version,
  name: string,
  request: Members,
  steps: readonly Step[],
  frame: Frame = {},
): Row {
  const { model = MODEL, closing = fingerprint(version) } = frame;
  const last = { ...head(model), choices: [], usage: usage(PROMPT_TOKENS, tokensOf(steps)), ...closing };
  return { name, request, response: stream([...chunks(version, steps, frame), { data: last }, DONE]) };
}

const call = (index: number, id: string, name: string): Members => ({
  id,
  type: 'function',
  index,
  function: { name, arguments: '' },
});
const piece = (index: number, text: string): Members => ({ index, function: { arguments: text } });

const TOOLS = ['get_weather', 'get_time'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}));

const logprob = (token: string, value: number): Members => ({
  token,
  logprob: value,
  bytes: [...Buffer.from(token)],
});
const logprobs = (token: string): Members => ({
  content: [{ ...logprob(token, -0.0125), top_logprobs: [logprob(token, -0.0125), logprob(' other', -4.5)] }],
});

/** Goes on with the last message, repeats it first, and takes few tokens only. */
const CONTINUED = {
  messages: [...MESSAGES, { role: 'assistant', content: 'As begun' }],
  ...{ add_generation_prompt: false, continue_final_message: true, echo: true },
  ...{ allowed_token_ids: [733, 2501], logprobs: true, logprob_token_ids: [733] },
};

const FINISHES = ['stop', 'length', 'abort', 'repetition'];

/** Streams that every version has. */
const streams = (version: Version): Row[] => [
  streamOf(version, 'plain text', streamed(), [
    role(),
    content('Hello'),
    content(', "wörld" 🙂\n'),
    content('and more'),
    content('\u0000\u2028'),
    finish('stop'),
  ]),
  streamOf(
    version,
    'under the first served name',
    streamed({ n: null }),
    [role(), content('Hello'), finish('stop')],
    { model: SERVED_MODEL },
  ),
  streamOf(version, 'text that reads like the markers of a stream', streamed(), [
    role(),
    content('data: [DONE]\n\n'),
    content('{"choices":[],"finish_reason":"stop","error":{}}'),
    finish('stop'),
  ]),
  streamOf(version, 'reasoning before the answer', streamed(), [
    role(),
    delta({ reasoning: 'Let me' }),
    delta({ reasoning: ' think.' }),
    content('42'),
    finish('stop'),
  ]),
  streamOf(version, 'two tools, each in several pieces', streamed({ tools: TOOLS }), [
    role(),
    delta({ tool_calls: [call(0, 'chatcmpl-tool-1', 'get_weather')] }),
    delta({ tool_calls: [piece(0, '{"city"')] }),
    delta({ tool_calls: [piece(0, ': "Oslo"}')] }),
    delta({ tool_calls: [call(1, 'chatcmpl-tool-2', 'get_time')] }),
    delta({ tool_calls: [piece(1, '{"city": '), piece(1, '"Rome"}')] }),
    finish('tool_calls'),
  ]),
  streamOf(version, 'log probabilities', streamed({ logprobs: true, top_logprobs: 2 }), [
    role(),
    { choice: { ...content('Hi').choice, logprobs: logprobs('Hi') } },
    { choice: { ...content('').choice, logprobs: { content: null } } },
    finish('stop'),
  ]),
  streamOf(version, 'two choices, interleaved', streamed({ n: 2 }), [
    role(0),
    role(1),
    content('a', 0),
    content('b', 1),
    content('c', 1),
    finish('stop', 1),
    content('d', 0),
    finish('length', 0),
  ]),
  ...FINISHES.map((reason) =>
    streamOf(version, `finished by ${reason}`, streamed(), [role(), content('x'), finish(reason)]),
  ),
  ...[128_009, 'END'].map((stopReason) =>
    streamOf(
      version,
      `stopped by ${typeof stopReason === 'number' ? 'a token' : 'a text'}`,
      streamed({ stop: ['END'] }),
      [role(), content('x'), finish('stop', 0, stopReason)],
    ),
  ),
  streamOf(version, 'no text, only a finish', streamed({ max_tokens: 1 }), [role(), finish('stop')]),
  streamOf(version, 'a finish with the last of the text, and an empty delta', streamed({ n: 2 }), [
    role(0),
    role(1),
    { choice: { ...finish('stop', 0).choice, delta: { content: 'all' } } },
    { choice: { ...finish('stop', 1).choice, delta: {} } },
  ]),
  streamOf(version, 'token ids', streamed({ return_token_ids: true }), [
    role(0, { prompt_token_ids: [1, 733, 16289] }),
    delta({ content: 'Hi' }, 0, { token_ids: [15043] }),
    { choice: { ...finish('stop').choice, token_ids: [2] } },
  ]),
  streamOf(version, 'echo of the prompt', streamed({ echo: true }), [
    role(),
    delta({ content: 'Say something.' }, 0, {}),
    content(' Fine.'),
    finish('stop'),
  ]),
  streamOf(version, 'the last message, continued by tokens that are allowed', streamed(CONTINUED), [
    role(),
    delta({ content: 'As begun' }, 0, {}),
    { choice: { ...content(' and').choice, logprobs: logprobs(' and') } },
    finish('stop'),
  ]),
  streamOf(
    version,
    'the last message of the user, continued',
    streamed({ ...CONTINUED, messages: MESSAGES }),
    [
      { choice: { ...role().choice, delta: { role: 'user', content: '' } } },
      delta({ content: 'Say something.' }, 0, {}),
      content(' Please.'),
      finish('stop'),
    ],
  ),
  ...[null, 'default'].map((tier) =>
    streamOf(
      version,
      `a service tier of ${tier}`,
      streamed(),
      [role(), content('x'), finish('stop')].map((step) => ({ ...step, before: { service_tier: tier } })),
      { closing: { service_tier: tier } },
    ),
  ),
  {
    name: 'an error first',
    request: streamed(),
    response: stream([errorEvent, DONE]),
    ends: 'error',
  },
  {
    name: 'an error after content',
    request: streamed(),
    response: stream([...chunks(version, [role(), content('Hel')], {}), errorEvent, DONE]),
    ends: 'error',
  },
];

/** Streams that came with 0.26. */
const laterStreams = (version: Version): Row[] => [
  streamOf(
    version,
    'the fingerprint at the finish',
    streamed(),
    [role(), content('x'), { ...finish('stop'), after: fingerprint(version) }],
    {
      closing: {},
    },
  ),
  streamOf(version, 'metrics in the closing chunk', streamed(), [role(), content('x'), finish('stop')], {
    closing: { ...fingerprint(version), metrics: METRICS },
  }),
  ...[null, '<|user|>Say something.'].map((text) =>
    streamOf(
      version,
      text === null ? 'a prompt text of null' : 'the text of the prompt',
      streamed({ return_prompt_text: true }),
      [role(0, { prompt_token_ids: null, prompt_text: text }), content('x'), finish('stop')],
    ),
  ),
];

/** Streams that came with 0.33. */
const latestStreams = (version: Version): Row[] => [
  streamOf(
    version,
    'every member that may stand beside the choices',
    streamed({ return_prompt_text: true }),
    [
      { ...role(0, { prompt_token_ids: null, prompt_text: null }), before: { service_tier: null } },
      { ...content('x'), before: { service_tier: 'default' } },
      { ...finish('stop'), after: fingerprint(version) },
    ],
    { closing: { ...fingerprint(version), metrics: METRICS } },
  ),
  streamOf(version, 'versions of the weights', streamed({ return_weight_versions: true }), [
    role(),
    delta({ content: 'x' }, 0, { token_ids: null, weight_versions: ['7', '8'] }),
    { choice: { ...finish('stop').choice, weight_versions: null } },
  ]),
  {
    name: 'transfer parameters at the finish',
    request: streamed(),
    response: stream([
      ...chunks(version, [role(), content('x')], {}),
      {
        data: {
          ...head(MODEL),
          choices: [finish('stop').choice],
          usage: usage(PROMPT_TOKENS, 1),
          kv_transfer_params: { remote_engine_id: 'e1', remote_block_ids: [4, 5] },
        },
      },
      { data: { ...head(MODEL), choices: [], usage: usage(PROMPT_TOKENS, 1), ...fingerprint(version) } },
      DONE,
    ]),
  },
];

/** 0.20 sends no finish for a choice that ends without a token. */
const emptyStreams = (version: Version): Row[] => [
  streamOf(version, 'no token and no finish', streamed(), [role()]),
];

const message = (more: Members): Members => ({
  role: 'assistant',
  content: null,
  refusal: null,
  annotations: null,
  audio: null,
  function_call: null,
  tool_calls: [],
  reasoning: null,
  ...more,
});

const wholeChoice = (index: number, more: Members, reason = 'stop', rest: Members = {}): Members => ({
  index,
  message: message(more),
  logprobs: null,
  finish_reason: reason,
  stop_reason: null,
  token_ids: null,
  ...rest,
});

const completion = (version: Version, choices: readonly Members[], more: Members = {}): Members => ({
  id: ID,
  object: 'chat.completion',
  created: CREATED,
  model: MODEL,
  choices,
  service_tier: null,
  system_fingerprint: null,
  ...fingerprint(version),
  usage: wholeUsage(PROMPT_TOKENS, 5),
  prompt_logprobs: null,
  prompt_token_ids: null,
  ...(since(version, '0.26') ? { prompt_text: null } : {}),
  kv_transfer_params: null,
  ...(since(version, '0.26') ? { ec_transfer_params: null, metrics: null } : {}),
  ...more,
});

const wholes = (version: Version): Row[] => [
  {
    name: 'a whole answer',
    request: asked(),
    response: whole(completion(version, [wholeChoice(0, { content: 'Hello "wörld" 🙂\n' })])),
  },
  {
    name: 'a whole answer of two choices, under the first served name',
    request: asked({ n: 2 }),
    response: whole(
      completion(version, [wholeChoice(0, { content: 'a' }), wholeChoice(1, { content: 'b' }, 'length')], {
        model: SERVED_MODEL,
      }),
    ),
  },
  {
    name: 'a whole answer that continues the last message',
    request: asked(CONTINUED),
    response: whole(
      completion(version, [
        wholeChoice(0, { content: 'As begun and' }, 'stop', { logprobs: logprobs(' and') }),
      ]),
    ),
  },
  {
    name: 'a whole answer to a prompt that was in the cache',
    request: asked(),
    response: whole(
      completion(version, [wholeChoice(0, { content: 'Hello' })], {
        usage: { ...usage(PROMPT_TOKENS, 5), prompt_tokens_details: { cached_tokens: 8 } },
      }),
    ),
  },
  {
    name: 'a whole answer that calls tools',
    request: asked({ tools: TOOLS }),
    response: whole(
      completion(version, [
        wholeChoice(
          0,
          {
            reasoning: 'The weather, then.',
            tool_calls: TOOLS.map(({ function: { name } }, index) => ({
              id: `chatcmpl-tool-${index}`,
              type: 'function',
              function: { name, arguments: '{"city": "Oslo"}' },
            })),
          },
          'tool_calls',
        ),
      ]),
    ),
  },
  {
    name: 'a whole answer with the log probabilities and ids of prompt and answer',
    request: asked({ logprobs: true, prompt_logprobs: 1, return_token_ids: true }),
    response: whole(
      completion(
        version,
        [
          wholeChoice(0, { content: 'Hi' }, 'stop', {
            logprobs: logprobs('Hi'),
            stop_reason: 'END',
            token_ids: [15043],
          }),
        ],
        {
          prompt_logprobs: [null, { '733': { logprob: -1.5, rank: 2, decoded_token: ' Say' } }],
          prompt_token_ids: [1, 733],
          kv_transfer_params: { remote_block_ids: [4] },
          ...(since(version, '0.26') ? { metrics: METRICS } : {}),
        },
      ),
    ),
  },
];

export const CHAT: readonly Transcript[] = forVersions('chat', (version) => [
  ...streams(version),
  ...(since(version, '0.26') ? laterStreams(version) : emptyStreams(version)),
  ...(since(version, '0.33') ? latestStreams(version) : []),
  ...wholes(version),
]);
