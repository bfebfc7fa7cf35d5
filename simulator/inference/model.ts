/**
 * Decides which model responds to a decrypted request: the backend if there is one, else a transcript or a
 * built-in model.
 */
import type { ModelOptions } from '../context.ts';
import { forModel } from './admission.ts';
import { backendResponse } from './backend.ts';
import type { Endpoint } from './endpoints.ts';
import { baseModel } from './faults.ts';
import { withMember } from './json-text.ts';
import { anthropicResponse } from './models/anthropic.ts';
import { embeddingsResponse } from './models/embeddings.ts';
import { isServed, modelById, modelList, namesOf } from './models/list.ts';
import { openaiError, openaiResponse, unknownModel } from './models/openai.ts';
import { type ModelEvent, type ModelResponse, unary } from './models/response.ts';
import { transcriptionResponse } from './models/transcription.ts';
import { loadTranscripts, transcriptResponse, turnIn } from './models/transcripts.ts';
import { type Turn, turnOf, turnsOf, withinLimit } from './models/turn.ts';
import { unstructuredResponse } from './models/unstructured.ts';
import { GPT_OSS, overflowOf, promptOverflowOf, WINDOWS } from './models/window.ts';
import type { JsonObject, OpenedBody, OpenedRequest } from './request.ts';

export interface Model {
  /**
   * Responds to a decrypted request. When `signal` aborts, it stops generating and rejects with AbortError.
   */
  respond(request: OpenedRequest, signal: AbortSignal): Promise<ModelResponse>;
  /** Responds to `/v1/models` and `/v1/models/{id}`. */
  list(endpoint: Endpoint, target: string, signal: AbortSignal): Promise<ModelResponse>;
}

/** Removes the faults from the model name, since a backend does not know them. */
function withBaseName(body: OpenedBody, model: string): OpenedBody {
  const name = baseModel(model);
  if (name === model || body.kind === 'raw') return body;
  if (body.kind === 'json') return { ...body, text: withMember(body.text, 'model', JSON.stringify(name)) };
  const parts = body.parts.map((part) =>
    part.name === 'model' ? { ...part, body: Buffer.from(name) } : part,
  );
  return { kind: 'form', parts };
}

/** The model id at the end of a path. An id with malformed escapes is taken literally. */
function idOf(target: string): string {
  const escaped = target.split('?', 1)[0]!.slice('/v1/models/'.length);
  try {
    return decodeURIComponent(escaped);
  } catch {
    return escaped;
  }
}

const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;

const withCopy = (holder: unknown): unknown =>
  isObject(holder) && holder['reasoning'] !== undefined
    ? { ...holder, reasoning_content: holder['reasoning'] }
    : holder;

function mirror(text: string): string {
  if (!text.includes('"reasoning"')) return text; // almost every chunk
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return text; // sealing will refuse it
  }
  if (!isObject(value) || !Array.isArray(value['choices'])) return text;
  const choices = value['choices'].map((choice: unknown) => {
    if (!isObject(choice)) return choice;
    const { delta, message } = choice as { delta?: unknown; message?: unknown };
    return {
      ...choice,
      ...(delta !== undefined && { delta: withCopy(delta) }),
      ...(message !== undefined && { message: withCopy(message) }),
    };
  });
  return JSON.stringify({ ...value, choices });
}

async function* mirrored(events: AsyncIterable<ModelEvent>): AsyncGenerator<ModelEvent> {
  for await (const event of events) yield { ...event, data: mirror(event.data) };
}

/**
 * Copies `reasoning` to `reasoning_content` in each choice, as the server does (docs/protocol/inference.md
 * 5.6).
 */
const mirrorReasoning = (response: ModelResponse): ModelResponse =>
  response.kind === 'unary'
    ? { ...response, body: mirror(response.body) }
    : { ...response, events: mirrored(response.events) };

/** What a chat lacks to be answered, as vLLM begins it; undefined if nothing, or if this is no chat. */
function missingIn({ endpoint, body }: OpenedRequest): string | undefined {
  if (body.kind !== 'json' || !['chat', 'messages'].includes(endpoint.name)) return undefined;
  const { messages, max_tokens } = body.value as { messages?: unknown; max_tokens?: unknown };
  if (messages === undefined) return '1 validation error: messages: Field required';
  if (!Array.isArray(messages)) return '1 validation error: messages: Input should be a valid list';
  const isLimited = endpoint.name === 'chat' || max_tokens !== undefined;
  return isLimited ? undefined : '1 validation error: max_tokens: Field required';
}

const isArguments = (text: unknown): boolean => {
  try {
    return typeof text !== 'string' || text === '' || isObject(JSON.parse(text));
  } catch {
    return false;
  }
};

/**
 * The refusal of a chat with an earlier call whose arguments are not a JSON object: vLLM parses them, and the
 * templates of models read their members.
 */
function brokenCallIn({ endpoint, body }: OpenedRequest): string | undefined {
  const { messages } = (body.kind === 'json' ? body.value : {}) as { messages?: unknown };
  if (endpoint.name !== 'chat' || !Array.isArray(messages)) return undefined;
  const calls: unknown[] = messages.flatMap((message) => (isObject(message) && message['tool_calls']) || []);
  const called = calls.map((call) => isObject(call) && call['function']).filter(isObject);
  const isBroken = called.some((of) => !isArguments(of['arguments']));
  return isBroken ? 'the arguments of a tool call are not a JSON object' : undefined;
}

/** Throws config_invalid if the transcripts cannot be read. `now` in ms since 1970. */
export function createModel(
  { backend, transcripts, anyName = true, edits }: ModelOptions,
  now: () => number,
): Model {
  const scripted = loadTranscripts(transcripts);

  async function builtIn(request: OpenedRequest, signal: AbortSignal): Promise<ModelResponse> {
    const { endpoint, body, stream } = request;
    if (body.kind === 'raw') return unstructuredResponse(body.bytes, body.contentType);
    const name = baseModel(request.model);
    if (!anyName && !isServed(name, [...scripted.keys()]))
      return unary(404, unknownModel(name, namesOf([...scripted.keys()])));
    const transcript = scripted.get(name);
    if (transcript !== undefined) {
      const turn = turnIn(transcript, body.kind === 'json' ? body.value : {});
      return transcriptResponse(turn, stream, signal);
    }
    const window = WINDOWS.get(name);
    const overflows = name === GPT_OSS ? promptOverflowOf : overflowOf;
    const overflow = window !== undefined && body.kind === 'json' ? overflows(window, body.value) : undefined;
    const message = (anyName ? undefined : missingIn(request)) ?? brokenCallIn(request) ?? overflow;
    const refusal: Turn | undefined =
      message === undefined ? undefined : { kind: 'error', status: 400, message };
    if (endpoint.name === 'completions' && body.kind === 'json') {
      const turns = refusal === undefined ? turnsOf(name, body.value) : [refusal];
      const limited = turns.map((turn) => withinLimit(turn, body.value));
      return openaiResponse('completions', limited, body.value, { stream, now, signal });
    }
    const asked = body.kind === 'json' ? body.value : {};
    const turn = refusal ?? withinLimit(turnOf(name, asked, edits), asked);
    if (body.kind === 'form') return transcriptionResponse(turn, body.parts, { stream, now, signal });
    if (endpoint.name === 'messages') return anthropicResponse(turn, body.value, { stream, signal });
    if (endpoint.name === 'chat') {
      return openaiResponse('chat', [turn], body.value, { stream, now, signal });
    }
    return turn.kind === 'error'
      ? unary(turn.status, openaiError(turn.status))
      : embeddingsResponse(body.value, now);
  }

  return {
    async respond(request, signal) {
      const body = forModel(request);
      const response =
        backend === undefined
          ? await builtIn({ ...request, body }, signal)
          : await backendResponse(backend, 'POST', request.target, withBaseName(body, request.model), signal);
      return request.endpoint.name === 'chat' ? mirrorReasoning(response) : response;
    },
    async list(endpoint, target, signal) {
      if (backend !== undefined) return backendResponse(backend, 'GET', target, undefined, signal);
      if (endpoint.name === 'models') return modelList([...scripted.keys()]);
      return modelById(idOf(target), [...scripted.keys()]);
    },
  };
}
