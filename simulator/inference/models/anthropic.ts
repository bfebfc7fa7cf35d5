/** Responses in the Anthropic style: messages, streamed and whole. */
import { paced } from '../pacing.ts';
import type { JsonObject } from '../request.ts';
import { type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import { newId, type TextTurn, type ToolTurn, type Turn } from './turn.ts';
import { countPrompt } from './window.ts';

const ERROR_TYPES: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  529: 'overloaded_error',
};

/** The error of the model server, in the Anthropic error format. */
export const anthropicError = (
  status: number,
  message = `the simulated model answers ${status}`,
): JsonObject => ({
  type: 'error',
  error: { type: ERROR_TYPES[status] ?? 'api_error', message },
});

/** An event with the name of its type. */
const event = (value: JsonObject & { readonly type: string }): ModelEvent => ({
  event: value.type,
  data: JSON.stringify(value),
});

const stopReason = (turn: TextTurn | ToolTurn): string =>
  turn.kind === 'tool' ? 'tool_use' : turn.isCut ? 'max_tokens' : 'end_turn';

/** The one block of a response, as it starts. */
const blockOf = (turn: TextTurn | ToolTurn): JsonObject =>
  turn.kind === 'text'
    ? { type: 'text', text: '' }
    : { type: 'tool_use', id: newId('toolu_'), name: turn.call.name, input: {} };

async function* deltas(turn: TextTurn | ToolTurn, signal: AbortSignal): AsyncGenerator<JsonObject> {
  if (turn.kind === 'text') {
    for await (const text of paced(turn.tokens, turn.intervalMs, signal)) yield { type: 'text_delta', text };
  } else {
    for (const piece of turn.call.pieces) yield { type: 'input_json_delta', partial_json: piece };
  }
}

async function* events(
  turn: TextTurn | ToolTurn,
  model: string,
  inputTokens: number,
  signal: AbortSignal,
): AsyncGenerator<ModelEvent> {
  yield event({
    type: 'message_start',
    message: {
      id: newId('msg_'),
      type: 'message',
      role: 'assistant',
      content: [],
      model,
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: inputTokens, output_tokens: 0 },
    },
  });
  yield event({ type: 'content_block_start', index: 0, content_block: blockOf(turn) });
  yield event({ type: 'ping' });
  let outputTokens = 0;
  for await (const delta of deltas(turn, signal)) {
    outputTokens++;
    yield event({ type: 'content_block_delta', index: 0, delta });
  }
  yield event({ type: 'content_block_stop', index: 0 });
  yield event({
    type: 'message_delta',
    delta: { stop_reason: stopReason(turn), stop_sequence: null },
    usage: { output_tokens: outputTokens },
  });
  yield event({ type: 'message_stop' });
}

/** One response of the messages endpoint. */
export async function anthropicResponse(
  turn: Turn,
  request: JsonObject,
  options: { readonly stream: boolean; readonly signal: AbortSignal },
): Promise<ModelResponse> {
  if (turn.kind === 'error') return unary(turn.status, anthropicError(turn.status, turn.message));
  const model = String(request['model']);
  const inputTokens = countPrompt(request);
  if (options.stream) return stream(events(turn, model, inputTokens, options.signal));

  const tokens: string[] = turn.kind === 'tool' ? [...turn.call.pieces] : [];
  if (turn.kind === 'text') {
    for await (const token of paced(turn.tokens, turn.intervalMs, options.signal)) tokens.push(token);
  }
  const block =
    turn.kind === 'text'
      ? { type: 'text', text: tokens.join('') }
      : { type: 'tool_use', id: newId('toolu_'), name: turn.call.name, input: turn.call.arguments };
  return unary(200, {
    id: newId('msg_'),
    type: 'message',
    role: 'assistant',
    content: [block],
    model,
    stop_reason: stopReason(turn),
    usage: { input_tokens: inputTokens, output_tokens: tokens.length },
  });
}
