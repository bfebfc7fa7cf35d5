/** Responses in the Anthropic style: messages, streamed and whole. */
import type { JsonObject } from '../request.ts';
import { countPrompt } from './list.ts';
import { type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import {
  collected,
  type ErrorTurn,
  newId,
  piecesOf,
  type TextTurn,
  type ToolTurn,
  type Turn,
} from './turn.ts';

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
const anthropicError = ({ status, message = `the simulated model answers ${status}` }: ErrorTurn) => ({
  type: 'error',
  error: { type: ERROR_TYPES[status] ?? 'api_error', message },
});

const event = (type: string, members: object = {}): ModelEvent => ({
  event: type,
  data: JSON.stringify({ type, ...members }),
});

const stopReason = (turn: TextTurn | ToolTurn): string =>
  turn.kind === 'tool' ? 'tool_use' : turn.isCut ? 'max_tokens' : 'end_turn';

const messageOf = (model: string, content: JsonObject[], stop: string | null, usage: JsonObject) => ({
  ...{ id: newId('msg_'), type: 'message', role: 'assistant', content, model, stop_reason: stop },
  usage,
});

/** The one block of a response, as it starts. */
const blockOf = (turn: TextTurn | ToolTurn): JsonObject =>
  turn.kind === 'text'
    ? { type: 'text', text: '' }
    : { type: 'tool_use', id: newId('toolu_'), name: turn.call.name, input: {} };

async function* events(
  turn: TextTurn | ToolTurn,
  model: string,
  inputTokens: number,
  signal: AbortSignal,
): AsyncGenerator<ModelEvent> {
  const usage = { input_tokens: inputTokens, output_tokens: 0 };
  const message = { ...messageOf(model, [], null, usage), stop_sequence: null };
  yield event('message_start', { message });
  yield event('content_block_start', { index: 0, content_block: blockOf(turn) });
  yield event('ping');
  let outputTokens = 0;
  for await (const piece of piecesOf(turn, signal)) {
    outputTokens++;
    const delta =
      turn.kind === 'text'
        ? { type: 'text_delta', text: piece }
        : { type: 'input_json_delta', partial_json: piece };
    yield event('content_block_delta', { index: 0, delta });
  }
  yield event('content_block_stop', { index: 0 });
  const delta = { stop_reason: stopReason(turn), stop_sequence: null };
  yield event('message_delta', { delta, usage: { output_tokens: outputTokens } });
  yield event('message_stop');
}

/** One response of the messages endpoint. */
export async function anthropicResponse(
  turn: Turn,
  request: JsonObject,
  options: { readonly stream: boolean; readonly signal: AbortSignal },
): Promise<ModelResponse> {
  if (turn.kind === 'error') return unary(turn.status, anthropicError(turn));
  const model = String(request['model']);
  const inputTokens = countPrompt(request);
  if (options.stream) return stream(events(turn, model, inputTokens, options.signal));

  const tokens = await collected(turn, options.signal);
  const filled = turn.kind === 'text' ? { text: tokens.join('') } : { input: turn.call.arguments };
  const usage = { input_tokens: inputTokens, output_tokens: tokens.length };
  return unary(200, messageOf(model, [{ ...blockOf(turn), ...filled }], stopReason(turn), usage));
}
