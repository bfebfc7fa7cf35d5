/** The OpenAI dialects: chat completions and legacy completions, streamed and whole, in the shapes vLLM gives them. */
import { paced } from '../pacing.ts';
import type { JsonObject } from '../request.ts';
import { DONE, data, type ModelAnswer, type ModelEvent, stream, unary } from './answer.ts';
import type { ToolCall } from './tools.ts';
import { countTokens, newId, type TextTurn, type ToolTurn, type Turn } from './turn.ts';

interface Usage {
  readonly prompt_tokens: number;
  readonly total_tokens: number;
  readonly completion_tokens: number;
}

const usageOf = (promptTokens: number, completionTokens: number): Usage => ({
  prompt_tokens: promptTokens,
  total_tokens: promptTokens + completionTokens,
  completion_tokens: completionTokens,
});

/** The error of the model server, in its own shape. */
export const openaiError = (status: number): JsonObject => ({
  error: {
    message: `the simulated model answers ${status}`,
    type: status < 500 ? 'BadRequestError' : 'InternalServerError',
    param: null,
    code: status,
  },
});

const unixSeconds = (now: () => number): number => Math.floor(now() / 1000);

interface Dialect {
  readonly idPrefix: string;
  readonly chunkObject: string;
  readonly object: string;
  /** The choice of a stream's first chunk, if it has one of its own. */
  readonly opening: JsonObject | undefined;
  readonly textDelta: (text: string) => JsonObject;
  readonly closing: (finish: string) => JsonObject;
  readonly whole: (text: string) => JsonObject;
}

const CHAT: Dialect = {
  idPrefix: 'chatcmpl-',
  chunkObject: 'chat.completion.chunk',
  object: 'chat.completion',
  opening: { index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
  textDelta: (content) => ({ index: 0, delta: { content }, logprobs: null, finish_reason: null }),
  closing: (finish) => ({
    index: 0,
    delta: {},
    logprobs: null,
    finish_reason: finish,
    stop_reason: null,
  }),
  whole: (content) => ({
    index: 0,
    message: { role: 'assistant', content, refusal: null, tool_calls: [] },
    logprobs: null,
    finish_reason: 'stop',
    stop_reason: null,
  }),
};

const LEGACY: Dialect = {
  idPrefix: 'cmpl-',
  chunkObject: 'text_completion',
  object: 'text_completion',
  opening: undefined,
  textDelta: (text) => ({ index: 0, text, logprobs: null, finish_reason: null }),
  closing: (finish) => ({ index: 0, text: '', logprobs: null, finish_reason: finish, stop_reason: null }),
  whole: (text) => ({ index: 0, text, logprobs: null, finish_reason: 'stop', stop_reason: null }),
};

interface Envelope {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly promptTokens: number;
}

/** The choices of a stream, in order: opening, one per token (or piece of a tool call), closing. */
async function* choicesOf(
  dialect: Dialect,
  turn: TextTurn | ToolTurn,
  signal: AbortSignal,
): AsyncGenerator<JsonObject> {
  if (dialect.opening !== undefined) yield dialect.opening;
  if (turn.kind === 'text') {
    for await (const token of paced(turn.tokens, turn.intervalMs, signal)) yield dialect.textDelta(token);
  } else {
    yield* toolDeltas(turn.call);
  }
  yield dialect.closing(turn.kind === 'text' ? 'stop' : 'tool_calls');
}

function* toolDeltas({ name, pieces }: ToolCall): Generator<JsonObject> {
  const choice = (call: JsonObject): JsonObject => ({
    index: 0,
    delta: { tool_calls: [{ index: 0, ...call }] },
    logprobs: null,
    finish_reason: null,
  });
  yield choice({ id: newId('call_'), type: 'function', function: { name, arguments: '' } });
  for (const piece of pieces) yield choice({ function: { arguments: piece } });
}

/** Every chunk carries usage, and a last one has no choices (inference.md 5.6). */
async function* chunks(
  dialect: Dialect,
  { id, created, model, promptTokens }: Envelope,
  choices: AsyncIterable<JsonObject>,
): AsyncGenerator<ModelEvent> {
  const object = dialect.chunkObject;
  let completionTokens = dialect.opening === undefined ? 0 : -1;
  for await (const choice of choices) {
    if (choice['finish_reason'] === null) completionTokens++;
    const usage = usageOf(promptTokens, completionTokens);
    yield data({ id, object, created, model, choices: [choice], usage });
  }
  yield data({ id, object, created, model, choices: [], usage: usageOf(promptTokens, completionTokens) });
  yield DONE;
}

function wholeToolCall({ name, arguments: values }: ToolCall): JsonObject {
  const call = {
    id: newId('call_'),
    type: 'function',
    function: { name, arguments: JSON.stringify(values) },
  };
  return {
    index: 0,
    message: { role: 'assistant', content: null, refusal: null, tool_calls: [call] },
    logprobs: null,
    finish_reason: 'tool_calls',
    stop_reason: null,
  };
}

/** One answer of chat completions (`chat`) or legacy completions. `now` in ms. */
export async function openaiAnswer(
  kind: 'chat' | 'completions',
  turn: Turn,
  request: JsonObject,
  options: { readonly stream: boolean; readonly now: () => number; readonly signal: AbortSignal },
): Promise<ModelAnswer> {
  if (turn.kind === 'error') return unary(turn.status, openaiError(turn.status));
  const dialect = kind === 'chat' ? CHAT : LEGACY;
  const envelope: Envelope = {
    id: newId(dialect.idPrefix),
    created: unixSeconds(options.now),
    model: String(request['model']),
    promptTokens: countTokens(request['messages'] ?? request['prompt']),
  };
  if (options.stream) return stream(chunks(dialect, envelope, choicesOf(dialect, turn, options.signal)));

  const tokens: string[] = turn.kind === 'tool' ? [...turn.call.pieces] : [];
  if (turn.kind === 'text') {
    for await (const token of paced(turn.tokens, turn.intervalMs, options.signal)) tokens.push(token);
  }
  const { id, created, model, promptTokens } = envelope;
  return unary(200, {
    id,
    object: dialect.object,
    created,
    model,
    choices: [turn.kind === 'tool' ? wholeToolCall(turn.call) : dialect.whole(tokens.join(''))],
    usage: usageOf(promptTokens, tokens.length),
    prompt_logprobs: null,
  });
}
