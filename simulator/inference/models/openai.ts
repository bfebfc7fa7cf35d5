/**
 * Responses in the OpenAI style: chat completions and legacy completions, streamed and whole, in the shapes
 * that vLLM gives them.
 */
import { paced } from '../pacing.ts';
import type { JsonObject } from '../request.ts';
import { DONE, data, type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import type { ToolCall } from './tools.ts';
import { newId, type TextTurn, type ToolTurn, type Turn } from './turn.ts';
import { countPrompt } from './window.ts';

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

/** The error of the model server, in the shape of vLLM. */
export const openaiError = (
  status: number,
  message = `the simulated model answers ${status}`,
): JsonObject => ({
  error: {
    message,
    type: status < 500 ? 'BadRequestError' : 'InternalServerError',
    param: null,
    code: status,
  },
});

/** The model server's error for a model that it does not serve, with the models that it lists. */
export const unknownModel = (name: string, listed: readonly string[]): JsonObject => ({
  error: {
    message: `The model \`${name}\` does not exist. This simulator has ${listed.join(', ')}.`,
    type: 'NotFoundError',
    param: 'model',
    code: 404,
  },
});

const unixSeconds = (now: () => number): number => Math.floor(now() / 1000);

type Kind = 'chat' | 'completions';

interface Shape {
  readonly idPrefix: string;
  readonly chunkObject: string;
  readonly object: string;
  /** The choice of the chunk that opens each index of a stream; undefined if there is no such chunk. */
  readonly opening: ((index: number) => JsonObject) | undefined;
  readonly textDelta: (index: number, text: string) => JsonObject;
  readonly closing: (index: number, finish: string) => JsonObject;
  readonly whole: (index: number, text: string, finish: string) => JsonObject;
  /** Members of a whole response after its usage. */
  readonly tail: JsonObject;
}

const CHAT: Shape = {
  idPrefix: 'chatcmpl-',
  chunkObject: 'chat.completion.chunk',
  object: 'chat.completion',
  opening: (index) => ({
    index,
    delta: { role: 'assistant', content: '' },
    logprobs: null,
    finish_reason: null,
  }),
  textDelta: (index, content) => ({ index, delta: { content }, logprobs: null, finish_reason: null }),
  closing: (index, finish) => ({
    index,
    delta: {},
    logprobs: null,
    finish_reason: finish,
    stop_reason: null,
  }),
  whole: (index, content, finish) => ({
    index,
    message: { role: 'assistant', content, refusal: null, tool_calls: [] },
    logprobs: null,
    finish_reason: finish,
    stop_reason: null,
  }),
  tail: { prompt_logprobs: null },
};

const LEGACY: Shape = {
  idPrefix: 'cmpl-',
  chunkObject: 'text_completion',
  object: 'text_completion',
  opening: undefined,
  textDelta: (index, text) => ({ index, text, logprobs: null, finish_reason: null }),
  closing: (index, finish) => ({ index, text: '', logprobs: null, finish_reason: finish, stop_reason: null }),
  whole: (index, text, finish) => ({ index, text, logprobs: null, finish_reason: finish, stop_reason: null }),
  tail: {},
};

interface Envelope {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly promptTokens: number;
}

type ResponseTurn = TextTurn | ToolTurn;

/** One output of one prompt. `next`: its next piece in the stream. */
interface Output {
  readonly index: number;
  readonly finish: string;
  readonly deltas: Iterator<JsonObject, void>;
  next: IteratorResult<JsonObject, void>;
}

const finishOf = (turn: ResponseTurn): string =>
  turn.kind === 'tool' ? 'tool_calls' : turn.isCut ? 'length' : 'stop';

function outputOf(shape: Shape, turn: ResponseTurn, index: number): Output {
  const deltas = turn.kind === 'text' ? textDeltas(shape, turn, index) : toolDeltas(turn.call, index);
  return { index, finish: finishOf(turn), deltas, next: deltas.next() };
}

function* textDeltas(shape: Shape, { tokens }: TextTurn, index: number): Generator<JsonObject, void> {
  for (const token of tokens) yield shape.textDelta(index, token);
}

function* toolDeltas({ name, pieces }: ToolCall, index: number): Generator<JsonObject, void> {
  const choice = (call: JsonObject): JsonObject => ({
    index,
    delta: { tool_calls: [{ index: 0, ...call }] },
    logprobs: null,
    finish_reason: null,
  });
  yield choice({ id: newId('call_'), type: 'function', function: { name, arguments: '' } });
  for (const piece of pieces) yield choice({ function: { arguments: piece } });
}

/**
 * Yields rounds. A round holds the next piece of each output that has one, and the finish of each output
 * whose last piece it holds.
 */
function* roundsOf(shape: Shape, outputs: readonly Output[]): Generator<readonly JsonObject[]> {
  let open = outputs;
  while (open.length > 0) {
    const round: JsonObject[] = [];
    for (const output of open) {
      if (output.next.done !== true) round.push(output.next.value);
      output.next = output.deltas.next();
      if (output.next.done === true) round.push(shape.closing(output.index, output.finish));
    }
    yield round;
    open = open.filter(({ next }) => next.done !== true);
  }
}

/**
 * The choices of a stream, in order: first those that open an index, then round by round. The pace applies
 * between rounds.
 */
async function* choicesOf(
  shape: Shape,
  turns: readonly ResponseTurn[],
  signal: AbortSignal,
): AsyncGenerator<JsonObject> {
  const outputs = turns.map((turn, index) => outputOf(shape, turn, index));
  if (shape.opening !== undefined) for (const { index } of outputs) yield shape.opening(index);
  for (const { index, finish, next } of outputs) if (next.done === true) yield shape.closing(index, finish);
  const rounds = roundsOf(
    shape,
    outputs.filter(({ next }) => next.done !== true),
  );
  for await (const round of paced(rounds, intervalOf(turns[0]), signal)) {
    for (const choice of round) yield choice; // `yield*` would await each of them twice
  }
}

const intervalOf = (turn: ResponseTurn | undefined): number => (turn?.kind === 'text' ? turn.intervalMs : 0);

const isOpening = ({ delta }: JsonObject): boolean =>
  typeof delta === 'object' && delta !== null && 'role' in delta;

/**
 * The chunks of a stream. Every chunk carries the usage of its output; the last one has no choices and the
 * usage of all outputs (docs/protocol/inference.md 5.6).
 */
async function* chunks(
  shape: Shape,
  { id, created, model, promptTokens }: Envelope,
  choices: AsyncIterable<JsonObject>,
): AsyncGenerator<ModelEvent> {
  const object = shape.chunkObject;
  const counts: number[] = [];
  let total = 0;
  for await (const choice of choices) {
    const index = choice['index'] as number;
    const tokens = choice['finish_reason'] === null && !isOpening(choice) ? 1 : 0;
    const count = (counts[index] ?? 0) + tokens;
    counts[index] = count;
    total += tokens;
    yield data({ id, object, created, model, choices: [choice], usage: usageOf(promptTokens, count) });
  }
  yield data({ id, object, created, model, choices: [], usage: usageOf(promptTokens, total) });
  yield DONE;
}

function wholeToolCall({ name, arguments: values }: ToolCall, index: number): JsonObject {
  const call = {
    id: newId('call_'),
    type: 'function',
    function: { name, arguments: JSON.stringify(values) },
  };
  return {
    index,
    message: { role: 'assistant', content: null, refusal: null, tool_calls: [call] },
    logprobs: null,
    finish_reason: 'tool_calls',
    stop_reason: null,
  };
}

/**
 * The choices of a whole response, and how many tokens they took. The pace is that of a stream of the first
 * output.
 */
async function wholeChoices(
  shape: Shape,
  turns: readonly ResponseTurn[],
  signal: AbortSignal,
): Promise<{ readonly choices: readonly JsonObject[]; readonly tokens: number }> {
  const choices: JsonObject[] = [];
  let count = 0;
  for (const [index, turn] of turns.entries()) {
    if (turn.kind === 'tool') {
      count += turn.call.pieces.length;
      choices.push(wholeToolCall(turn.call, index));
      continue;
    }
    const tokens: string[] = [];
    const interval = index === 0 ? turn.intervalMs : 0;
    for await (const token of paced(turn.tokens, interval, signal)) tokens.push(token);
    count += tokens.length;
    choices.push(shape.whole(index, tokens.join(''), finishOf(turn)));
  }
  return { choices, tokens: count };
}

/** Most outputs that a request may ask for per prompt. */
const MAX_OUTPUTS = 128;

/** `n` of a request; 1 if it is absent or null. Undefined if the model server would refuse it. */
function outputsAsked(n: unknown): number | undefined {
  const asked = n ?? 1;
  return Number.isInteger(asked) && (asked as number) >= 1 && (asked as number) <= MAX_OUTPUTS
    ? (asked as number)
    : undefined;
}

/**
 * One response of chat completions or legacy completions: `n` outputs for each turn, one turn per prompt.
 * Indexes run from 0 to n times the turns, and those of one prompt are consecutive. `now` in ms.
 */
export async function openaiResponse(
  kind: Kind,
  turns: readonly Turn[],
  request: JsonObject,
  options: { readonly stream: boolean; readonly now: () => number; readonly signal: AbortSignal },
): Promise<ModelResponse> {
  const failed = turns.find((turn) => turn.kind === 'error');
  if (failed !== undefined) return unary(failed.status, openaiError(failed.status, failed.message));
  const outputs = outputsAsked(request['n']);
  if (outputs === undefined || turns.length === 0) return unary(400, openaiError(400));
  const answered = turns as readonly ResponseTurn[];
  const each = answered.flatMap((turn) => Array.from({ length: outputs }, () => turn));
  const shape = kind === 'chat' ? CHAT : LEGACY;
  const envelope: Envelope = {
    id: newId(shape.idPrefix),
    created: unixSeconds(options.now),
    model: String(request['model']),
    promptTokens: countPrompt(request),
  };
  if (options.stream) return stream(chunks(shape, envelope, choicesOf(shape, each, options.signal)));

  const { choices, tokens } = await wholeChoices(shape, each, options.signal);
  const { id, created, model, promptTokens } = envelope;
  return unary(200, {
    id,
    object: shape.object,
    created,
    model,
    choices,
    usage: usageOf(promptTokens, tokens),
    ...shape.tail,
  });
}
