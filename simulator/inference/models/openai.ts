/** Chat completions and legacy completions, streamed and whole, in the shapes that vLLM gives them. */
import type { JsonObject } from '../request.ts';
import { countPrompt } from './list.ts';
import { DONE, data, type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import { collected, newId, piecesOf, type TextTurn, type ToolTurn, type Turn } from './turn.ts';

/** The usage of a response, in tokens. */
export const usageOf = (promptTokens: number, completionTokens: number): JsonObject => ({
  prompt_tokens: promptTokens,
  total_tokens: promptTokens + completionTokens,
  completion_tokens: completionTokens,
});

/** The error of the model server, in the shape of vLLM. */
export const openaiError = (
  status: number,
  message = `the simulated model answers ${status}`,
  { type = status < 500 ? 'BadRequestError' : 'InternalServerError', param = null as string | null } = {},
): JsonObject => ({ error: { message, type, param, code: status } });

type Kind = 'chat' | 'completions';
type ResponseTurn = TextTurn | ToolTurn;

/** One choice of a chunk or of a whole response; `finish` is null while it goes on. */
const choiceOf = (index: number, part: JsonObject, finish: string | null): JsonObject => ({
  index,
  ...part,
  logprobs: null,
  finish_reason: finish,
  ...(finish !== null && { stop_reason: null }),
});

const finishOf = (turn: ResponseTurn): string =>
  turn.kind === 'tool' ? 'tool_calls' : turn.isCut ? 'length' : 'stop';

/** The parts of a stream that hold one token each. */
async function* deltasOf(kind: Kind, turn: ResponseTurn, signal: AbortSignal): AsyncGenerator<JsonObject> {
  const call = (part: JsonObject): JsonObject => ({ delta: { tool_calls: [{ index: 0, ...part }] } });
  if (turn.kind === 'tool')
    yield call({ id: newId('call_'), type: 'function', function: { name: turn.call.name, arguments: '' } });
  for await (const piece of piecesOf(turn, signal)) {
    if (turn.kind === 'tool') yield call({ function: { arguments: piece } });
    else yield kind === 'chat' ? { delta: { content: piece } } : { text: piece };
  }
}

/**
 * The chunks of a stream, one output after the other. Every chunk carries the usage of its output; the last
 * has no choices and the usage of all outputs (docs/protocol/inference.md 5.6).
 */
async function* chunks(
  kind: Kind,
  turns: readonly ResponseTurn[],
  head: JsonObject,
  promptTokens: number,
  signal: AbortSignal,
): AsyncGenerator<ModelEvent> {
  const object = kind === 'chat' ? 'chat.completion.chunk' : 'text_completion';
  const chunk = (choices: readonly JsonObject[], tokens: number): ModelEvent =>
    data({ ...head, object, choices, usage: usageOf(promptTokens, tokens) });
  let total = 0;
  for (const [index, turn] of turns.entries()) {
    let count = 0;
    if (kind === 'chat')
      yield chunk([choiceOf(index, { delta: { role: 'assistant', content: '' } }, null)], 0);
    for await (const delta of deltasOf(kind, turn, signal))
      yield chunk([choiceOf(index, delta, null)], ++count);
    yield chunk([choiceOf(index, kind === 'chat' ? { delta: {} } : { text: '' }, finishOf(turn))], count);
    total += count;
  }
  yield chunk([], total);
  yield DONE;
}

/** What the choice of a whole response holds, beside its finish. */
function wholePart(kind: Kind, turn: ResponseTurn, text: string): JsonObject {
  if (kind === 'completions') return { text };
  const message = { role: 'assistant', content: text, refusal: null, tool_calls: [] };
  if (turn.kind === 'text') return { message };
  const call = { name: turn.call.name, arguments: JSON.stringify(turn.call.arguments) };
  const calls = [{ id: newId('call_'), type: 'function', function: call }];
  return { message: { ...message, content: null, tool_calls: calls } };
}

/** Most outputs that a request may ask for per prompt. */
const MAX_OUTPUTS = 128;

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
  const n = (request['n'] ?? 1) as number;
  if (!Number.isInteger(n) || n < 1 || n > MAX_OUTPUTS || turns.length === 0)
    return unary(400, openaiError(400));
  const each = (turns as readonly ResponseTurn[]).flatMap((turn) => Array.from({ length: n }, () => turn));
  const id = newId(kind === 'chat' ? 'chatcmpl-' : 'cmpl-');
  const head = { id, created: Math.floor(options.now() / 1000), model: String(request['model']) };
  const promptTokens = countPrompt(request);
  if (options.stream) return stream(chunks(kind, each, head, promptTokens, options.signal));

  let total = 0;
  const choices: JsonObject[] = [];
  for (const [index, turn] of each.entries()) {
    const tokens = await collected(turn, options.signal);
    total += tokens.length;
    choices.push(choiceOf(index, wholePart(kind, turn, tokens.join('')), finishOf(turn)));
  }
  const object = kind === 'chat' ? 'chat.completion' : 'text_completion';
  const whole = { ...head, object, choices, usage: usageOf(promptTokens, total) };
  return unary(200, kind === 'chat' ? { ...whole, prompt_logprobs: null } : whole);
}
