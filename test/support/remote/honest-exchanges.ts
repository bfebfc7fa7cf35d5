/**
 * What honest model servers answer, before anything is sealed: one exchange for each shape that the API has, and the part of
 * it that a client of the API reads.
 */

export type ApiName = 'chat' | 'completions' | 'messages' | 'embeddings' | 'transcription' | 'unstructured';

type Json = Readonly<Record<string, unknown>>;

export interface HonestExchange {
  readonly name: string;
  readonly api: ApiName;
  /** Members of the request, or fields of its form; the model server knows the answer by `model`. */
  readonly request: Json;
  /** How many choices the request asks for: `n` times the number of prompts. */
  readonly choices: number;
  readonly format?: 'json' | 'verbose_json';
  /** Of a stream, without `[DONE]`. */
  readonly events?: readonly Json[];
  /** Of a whole answer. */
  readonly status?: number;
  readonly body?: unknown;
}

export const PATHS: Readonly<Record<ApiName, string>> = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
  messages: '/v1/messages',
  embeddings: '/v1/embeddings',
  transcription: '/v1/audio/transcriptions',
  unstructured: '/unstructured/general/v0/general',
};

/** The members that are plain in requests and responses. */
export const PLAIN: Readonly<
  Record<ApiName, { readonly request: readonly string[]; readonly response: readonly string[] }>
> = {
  chat: {
    request: ['model', 'stream_options', 'max_tokens', 'max_completion_tokens', 'n', 'stream'],
    response: ['id', 'usage'],
  },
  completions: {
    request: ['model', 'stream_options', 'max_tokens', 'max_completion_tokens', 'n', 'stream'],
    response: ['id', 'usage'],
  },
  messages: { request: ['model', 'stream'], response: ['id', 'type', 'usage'] },
  embeddings: { request: ['model'], response: ['id', 'usage'] },
  transcription: {
    request: ['model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats'],
    response: ['duration', 'usage'],
  },
  unstructured: { request: [], response: [] },
};

/** What tells two runs of one request apart. */
export interface Run {
  readonly created: number;
  readonly model: string;
  readonly id: string;
  /** Goes in front of every text. */
  readonly says: string;
}

export const FIRST_RUN: Run = { created: 1_700_000_000, model: 'served', id: 'run-1', says: '' };

const USAGE = { prompt_tokens: 3, total_tokens: 5, completion_tokens: 2 };
const PROMPT = [{ role: 'user', content: 'asked' }];

function chatApi({ created, model, id, says }: Run) {
  const chunk = (choices: readonly Json[], optional: Json = {}): Json => ({
    id: `chatcmpl-${id}`,
    object: 'chat.completion.chunk',
    created,
    model,
    choices,
    usage: USAGE,
    ...optional,
  });
  const choice = (index: number, delta: Json, finish: string | null = null): Json => ({
    index,
    delta,
    logprobs: null,
    finish_reason: finish,
    ...(finish === null ? {} : { stop_reason: null }),
  });
  const role = (index: number): Json =>
    chunk([choice(index, { role: 'assistant', content: '' })], { prompt_token_ids: null });
  const content = (index: number, text: string, more: Json = {}): Json =>
    chunk([{ ...choice(index, { content: `${says}${text}` }), ...more }], { kv_transfer_params: null });
  const finish = (index: number, reason = 'stop'): Json =>
    chunk([choice(index, {}, reason)], { system_fingerprint: 'fp-1' });
  const tool = (call: Json): Json => chunk([choice(0, { tool_calls: [{ index: 0, ...call }] })]);
  const whole = (count: number, more: Json = {}): Json => ({
    id: `chatcmpl-${id}`,
    object: 'chat.completion',
    created,
    model,
    choices: Array.from({ length: count }, (_, index) => ({
      index,
      message: { role: 'assistant', content: `${says}words ${index}`, refusal: null, tool_calls: [] },
      logprobs: null,
      finish_reason: 'stop',
      stop_reason: null,
      ...more,
    })),
    usage: USAGE,
    service_tier: null,
    system_fingerprint: 'fp-1',
    prompt_logprobs: null,
    prompt_token_ids: null,
    kv_transfer_params: null,
  });
  return { chunk, role, content, finish, tool, whole, closing: chunk([]) };
}

function completionsApi({ created, model, id, says }: Run) {
  const head = { id: `cmpl-${id}`, object: 'text_completion', created, model };
  const chunk = (choices: readonly Json[]): Json => ({
    ...head,
    choices,
    usage: USAGE,
    kv_transfer_params: null,
  });
  const text = (index: number, words: string, finish: string | null = null, more: Json = {}): Json =>
    chunk([
      { index, text: `${says}${words}`, logprobs: null, finish_reason: finish, stop_reason: null, ...more },
    ]);
  const whole = (count: number, more: Json = {}): Json => ({
    ...head,
    choices: Array.from({ length: count }, (_, index) => ({
      index,
      text: `${says}words ${index}`,
      logprobs: null,
      finish_reason: 'stop',
      stop_reason: null,
      prompt_logprobs: null,
      ...more,
    })),
    usage: USAGE,
    service_tier: null,
    system_fingerprint: null,
    kv_transfer_params: null,
  });
  return { text, whole, closing: chunk([]) };
}

function transcriptionApi({ created, model, id, says }: Run) {
  const chunk = (choices: readonly Json[]): Json => ({
    id: `trsc-${id}`,
    object: 'transcription.chunk',
    created,
    model,
    choices,
    usage: USAGE,
  });
  const words = (content: string): Json => chunk([{ delta: { content: `${says}${content}` } }]);
  const finish = chunk([{ delta: { content: '' }, finish_reason: 'stop', stop_reason: null }]);
  return { words, finish, closing: chunk([]) };
}

function messagesApi({ model, id, says }: Run) {
  const start: Json = {
    type: 'message_start',
    message: {
      id: `msg_${id}`,
      content: [],
      model,
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 3, output_tokens: 0 },
      type: 'message',
      role: 'assistant',
    },
  };
  const block = (index: number, content_block: Json, deltas: readonly Json[]): Json[] => [
    { type: 'content_block_start', index, content_block },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index },
  ];
  const text = (index: number, ...words: readonly string[]): Json[] =>
    block(
      index,
      { type: 'text', text: '' },
      words.map((word) => ({ type: 'text_delta', text: `${says}${word}` })),
    );
  const thinking = (index: number, ...words: readonly string[]): Json[] =>
    block(index, { type: 'thinking', thinking: '' }, [
      ...words.map((word) => ({ type: 'thinking_delta', thinking: `${says}${word}` })),
      { type: 'signature_delta', signature: 'signed' },
    ]);
  const tool = (index: number): Json[] =>
    block(
      index,
      { type: 'tool_use', id: 'toolu_1', name: 'look', input: {} },
      ['{"at":', '"sim"}'].map((partial_json) => ({ type: 'input_json_delta', partial_json })),
    );
  const stop = (stop_reason: string): Json[] => [
    { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 2 } },
    { type: 'message_stop' },
  ];
  const whole: Json = {
    id: `msg_${id}`,
    type: 'message',
    role: 'assistant',
    content: [{ type: 'text', text: `${says}words` }],
    model,
    stop_reason: 'end_turn',
    usage: { input_tokens: 3, output_tokens: 2 },
  };
  return { start, text, thinking, tool, stop, whole };
}

const OPENAI_ERROR = { error: { message: 'it broke', type: 'InternalServerError', param: null, code: 500 } };
const ANTHROPIC_ERROR = { type: 'error', error: { type: 'api_error', message: 'it broke' } };

/** A completion that repeats its prompt, with the log probabilities of both, their tokens as numbers. */
const ECHO = { prompt: 'asked', echo: true, logprobs: 1, return_tokens_as_token_ids: true };
const SCORES = {
  text_offset: [0, 5],
  token_logprobs: [null, -0.25],
  tokens: ['token_id:733', 'token_id:2501'],
  top_logprobs: [null, { 'token_id:2501': -0.25 }],
};
/** As many prompts as evaluations of models send at once. */
const BATCH = Array.from({ length: 255 }, (_, index) => `asked ${index}`);
/** A chat that goes on with its last message, by some tokens only. */
const CONTINUED = {
  messages: [...PROMPT, { role: 'assistant', content: 'as begun' }],
  ...{ add_generation_prompt: false, continue_final_message: true, echo: true },
  ...{ allowed_token_ids: [733, 2501], logprobs: true, logprob_token_ids: [733] },
};
const LOGPROB = { token: 'one', logprob: -0.25, bytes: [111, 110, 101] };
const CHOSEN = {
  logprobs: { content: [{ ...LOGPROB, top_logprobs: [LOGPROB, { ...LOGPROB, token: 'other' }] }] },
};

/** Every shape of response, as that run of the model server gives it. */
export function honestExchanges(run: Run = FIRST_RUN): readonly HonestExchange[] {
  const chat = chatApi(run);
  const completions = completionsApi(run);
  const transcription = transcriptionApi(run);
  const messages = messagesApi(run);
  /** The name begins with the API. */
  const exchange = (
    name: string,
    { asks, ...answer }: { readonly asks: Json } & Partial<Omit<HonestExchange, 'name' | 'api' | 'request'>>,
  ): HonestExchange => {
    const streaming = answer.events === undefined ? {} : { stream: true };
    const api = name.split('-', 1)[0] as ApiName;
    return { name, api, choices: 1, ...answer, request: { model: name, ...asks, ...streaming } };
  };
  const form = { language: 'en', prompt: 'spoken', response_format: 'json' };
  return [
    exchange('chat-stream', {
      asks: { messages: PROMPT },
      events: [
        chat.role(0),
        ...['one', 'two', 'three', 'four'].map((word) => chat.content(0, word)),
        chat.finish(0),
        chat.closing,
      ],
    }),
    exchange('chat-stream-2', {
      asks: { messages: PROMPT, n: 2 },
      choices: 2,
      events: [
        ...[0, 1].map(chat.role),
        ...['one', 'two'].flatMap((word) => [0, 1].map((index) => chat.content(index, word))),
        chat.finish(0),
        chat.content(1, 'three'),
        chat.finish(1, 'length'),
        chat.closing,
      ],
    }),
    exchange('chat-stream-tools', {
      asks: { messages: PROMPT },
      events: [
        chat.role(0),
        chat.tool({ id: 'call_1', type: 'function', function: { name: 'look', arguments: '' } }),
        ...['{"at":', '"sim"}'].map((piece) => chat.tool({ function: { arguments: piece } })),
        chat.finish(0, 'tool_calls'),
        chat.closing,
      ],
    }),
    exchange('chat-stream-error', {
      asks: { messages: PROMPT },
      events: [chat.role(0), chat.content(0, 'one'), OPENAI_ERROR],
    }),
    exchange('chat-stream-error-first', { asks: { messages: PROMPT }, events: [OPENAI_ERROR] }),
    exchange('chat-stream-additions', {
      asks: { messages: PROMPT },
      events: [
        { ...chat.role(0), prompt_text: null, service_tier: null, citations: [] },
        { ...chat.content(0, 'one'), metrics: {}, service_tier: 'default' },
        { ...chat.finish(0), kv_transfer_params: { peer: 1 } },
        { ...chat.closing, system_fingerprint: 'fp-1', metrics: { queue: 0.5 } },
      ],
    }),
    exchange('chat-whole', { asks: { messages: PROMPT }, body: chat.whole(1) }),
    exchange('chat-whole-2', { asks: { messages: PROMPT, n: 2 }, choices: 2, body: chat.whole(2) }),
    exchange('chat-stream-continued', {
      asks: CONTINUED,
      events: [
        chat.role(0),
        chat.content(0, 'as begun'),
        ...['one', 'two'].map((word) => chat.content(0, word, CHOSEN)),
        chat.finish(0),
        chat.closing,
      ],
    }),
    exchange('chat-whole-continued', { asks: CONTINUED, body: chat.whole(1, CHOSEN) }),
    exchange('chat-error', { asks: { messages: PROMPT }, status: 400, body: OPENAI_ERROR }),

    exchange('completions-stream', {
      asks: { prompt: 'asked' },
      events: [
        ...['one', 'two', 'three'].map((word) => completions.text(0, word)),
        completions.text(0, '', 'stop'),
        completions.closing,
      ],
    }),
    exchange('completions-stream-batch', {
      asks: { prompt: ['asked', 'and asked'] },
      choices: 2,
      events: [
        ...[0, 1].flatMap((index) => [
          ...['one', 'two'].map((word) => completions.text(index, word)),
          completions.text(index, 'three', 'stop'),
        ]),
        completions.closing,
      ],
    }),
    exchange('completions-whole', { asks: { prompt: 'asked' }, body: completions.whole(1) }),
    exchange('completions-whole-batch', {
      asks: { prompt: ['asked', 'and asked'], n: 2 },
      choices: 4,
      body: completions.whole(4),
    }),
    exchange('completions-stream-echo', {
      asks: { ...ECHO, max_tokens: 2 },
      events: [
        completions.text(0, 'asked', null, { logprobs: SCORES }),
        completions.text(0, 'one', 'length', { logprobs: SCORES }),
        completions.closing,
      ],
    }),
    exchange('completions-stream-scored', {
      asks: { ...ECHO, max_tokens: 0 },
      events: [completions.text(0, 'asked', 'length', { logprobs: SCORES }), completions.closing],
    }),
    exchange('completions-whole-scored', {
      asks: { ...ECHO, max_tokens: 0 },
      body: completions.whole(1, { logprobs: SCORES, finish_reason: 'length' }),
    }),
    exchange('completions-stream-255', {
      asks: { prompt: BATCH },
      choices: 255,
      events: [...BATCH.map((_, index) => completions.text(index, 'one', 'stop')), completions.closing],
    }),
    exchange('completions-whole-255', {
      asks: { ...ECHO, prompt: BATCH, max_tokens: 0 },
      choices: 255,
      body: completions.whole(255, { logprobs: SCORES, finish_reason: 'length' }),
    }),

    exchange('transcription-stream', {
      asks: form,
      format: 'json',
      events: [
        ...['one', 'two'].map(transcription.words),
        transcription.finish,
        ...['three', 'four'].map(transcription.words),
        transcription.finish,
        transcription.closing,
      ],
    }),
    exchange('transcription-whole', {
      asks: form,
      format: 'json',
      body: { text: `${run.says}spoken`, usage: { type: 'duration', seconds: 1 } },
    }),
    exchange('transcription-verbose', {
      asks: { ...form, response_format: 'verbose_json' },
      format: 'verbose_json',
      body: {
        duration: '1.0',
        language: 'en',
        text: `${run.says}spoken`,
        segments: [
          { id: 0, seek: 0, start: 0, end: 1, text: `${run.says}spoken`, tokens: [], temperature: 0 },
        ],
        words: null,
      },
    }),

    exchange('messages-stream', {
      asks: { max_tokens: 9, messages: PROMPT },
      events: [
        messages.start,
        { type: 'ping' },
        ...messages.thinking(0, 'one', 'two'),
        ...messages.text(1, 'three', 'four', 'five'),
        ...messages.stop('end_turn'),
      ],
    }),
    exchange('messages-stream-tool', {
      asks: { max_tokens: 9, messages: PROMPT },
      events: [messages.start, ...messages.text(0, 'one'), ...messages.tool(1), ...messages.stop('tool_use')],
    }),
    exchange('messages-stream-error', {
      asks: { max_tokens: 9, messages: PROMPT },
      events: [messages.start, ...messages.text(0, 'one', 'two').slice(0, -1), ANTHROPIC_ERROR],
    }),
    exchange('messages-stream-empty', {
      asks: { max_tokens: 9, messages: PROMPT },
      events: [
        messages.start,
        { ...messages.stop('max_tokens')[0], context_management: { applied_edits: [] } },
        { type: 'message_stop' },
      ],
    }),
    exchange('messages-whole', { asks: { max_tokens: 9, messages: PROMPT }, body: messages.whole }),
    exchange('messages-whole-stopped', {
      asks: { max_tokens: 9, messages: PROMPT, stop_sequences: ['end_turn'] },
      body: { ...messages.whole, stop_reason: 'stop_sequence', stop_sequence: 'end_turn' },
    }),
    exchange('messages-error', {
      asks: { max_tokens: 9, messages: PROMPT },
      status: 400,
      body: ANTHROPIC_ERROR,
    }),

    exchange('embeddings-whole', {
      asks: { input: ['a', 'b'], encoding_format: 'float' },
      body: {
        id: 'embd-1',
        object: 'list',
        created: run.created,
        model: run.model,
        data: [0, 1].map((index) => ({ object: 'embedding', index, embedding: [0.25, index] })),
        usage: USAGE,
      },
    }),
    exchange('unstructured-whole', {
      asks: { document: 'pages' },
      body: Array.from({ length: 12 }, (_, index) => ({ type: 'Title', text: `${run.says}part ${index}` })),
    }),
    exchange('unstructured-empty', { asks: { document: 'pages' }, body: [] }),
    exchange('unstructured-files', {
      asks: { document: 'pages' },
      body: [0, 1].map((file) => [{ type: 'Title', text: `${run.says}file ${file}` }]),
    }),
  ];
}

const OPENAI_CHUNK = ['choices', 'created', 'model', 'object'];
const EVENT_MEMBERS: Readonly<Partial<Record<ApiName, readonly string[]>>> = {
  chat: OPENAI_CHUNK,
  completions: OPENAI_CHUNK,
  transcription: [...OPENAI_CHUNK, 'id'],
  messages: ['type', 'message', 'index', 'content_block', 'delta'],
};
const WHOLE_MEMBERS: Readonly<Record<ApiName, readonly string[]>> = {
  chat: OPENAI_CHUNK,
  completions: OPENAI_CHUNK,
  embeddings: ['data', 'model', 'object'],
  messages: ['content', 'model', 'role', 'stop_reason'],
  transcription: ['language', 'segments', 'text', 'words'],
  unstructured: [],
};

const picked = (value: Json, names: readonly string[]): Json =>
  Object.fromEntries(names.filter((name) => Object.hasOwn(value, name)).map((name) => [name, value[name]]));

/**
 * What a client reads of an item of a stream; undefined where it reads nothing: pings, and chunks that carry usage alone. An error
 * is read as that, whatever stands beside it.
 */
export function essenceOfEvent(api: ApiName, item: Json): Json | undefined {
  if ((item['error'] ?? null) !== null) return { error: item['error'] };
  if (item['type'] === 'ping' && api === 'messages') return undefined;
  const { choices } = item;
  if (api !== 'messages' && Array.isArray(choices) && choices.length === 0) return undefined;
  return picked(item, EVENT_MEMBERS[api] ?? []);
}

/** What a client reads of a whole answer. */
export function essenceOfBody(api: ApiName, body: unknown): unknown {
  return Array.isArray(body) ? body : picked(body as Json, WHOLE_MEMBERS[api]);
}

/** What a client reads of the whole exchange: the items of its stream, or its body as the only one. */
export const essenceOf = ({ api, events, body }: HonestExchange): unknown[] =>
  events === undefined
    ? [essenceOfBody(api, body)]
    : events.map((event) => essenceOfEvent(api, event)).filter((item) => item !== undefined);
