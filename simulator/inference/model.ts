/** Decides which model responds: the backend if there is one, else a transcript or a built-in model. */
import querystring from 'node:querystring';
import { forModel } from './admission.ts';
import { backendResponse } from './backend.ts';
import type { Endpoint } from './endpoints.ts';
import { baseModel } from './faults.ts';
import { withMember } from './json-text.ts';
import { anthropicResponse } from './models/anthropic.ts';
import { embeddingsResponse } from './models/embeddings.ts';
import { isServed, modelEntry, namesOf, refusalBy } from './models/list.ts';
import { openaiError, openaiResponse } from './models/openai.ts';
import { type ModelEvent, type ModelResponse, unary } from './models/response.ts';
import { transcriptionResponse } from './models/transcription.ts';
import { loadTranscripts, transcriptResponse } from './models/transcripts.ts';
import { type Turn, turnOf, turnsOf, withinLimit } from './models/turn.ts';
import { unstructuredResponse } from './models/unstructured.ts';
import { isObject, type OpenedBody, type OpenedRequest } from './request.ts';
import { altered } from './wire.ts';

/** Where responses come from: a backend, recorded responses, or built-in models if neither is given. */
export interface ModelOptions {
  /** Base URL of a real OpenAI-compatible server that answers the decrypted requests. */
  readonly backend?: string | undefined;
  /** Path of a file of recorded responses. */
  readonly transcripts?: string | undefined;
  /** Whether the built-in models accept any name and request, as tests want. Default: true. */
  readonly anyName?: boolean | undefined;
  /** Directory in which `sim-chat` may ask an agent to write a file. Without it, it asks for no file. */
  readonly edits?: string | undefined;
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

/** Copies `reasoning` to `reasoning_content` in each choice (docs/protocol/inference.md 5.6). */
function mirrored(text: string): string {
  if (!text.includes('"reasoning"')) return text; // almost every chunk
  try {
    const copied = JSON.parse(text, (name, value: unknown) =>
      (name === 'delta' || name === 'message') && isObject(value) && value['reasoning'] !== undefined
        ? { ...value, reasoning_content: value['reasoning'] }
        : value,
    );
    return JSON.stringify(copied);
  } catch {
    return text; // sealing will refuse it
  }
}

const MIRRORS = { ofModel: (event: ModelEvent) => [{ ...event, data: mirrored(event.data) }] };

/** What a chat lacks to be answered, as vLLM begins it; undefined if nothing, or if this is no chat. */
function missingIn({ endpoint, body }: OpenedRequest): string | undefined {
  if (body.kind !== 'json' || !['chat', 'messages'].includes(endpoint.name)) return undefined;
  const { messages, max_tokens } = body.value;
  if (messages === undefined) return '1 validation error: messages: Field required';
  if (!Array.isArray(messages)) return '1 validation error: messages: Input should be a valid list';
  const isLimited = endpoint.name === 'chat' || max_tokens !== undefined;
  return isLimited ? undefined : '1 validation error: max_tokens: Field required';
}

const memberOf = (value: unknown, name: string): unknown => (isObject(value) ? value[name] : undefined);

function isBrokenCall(call: unknown): boolean {
  const text = memberOf(memberOf(call, 'function'), 'arguments');
  try {
    return typeof text === 'string' && text !== '' && !isObject(JSON.parse(text));
  } catch {
    return true;
  }
}

/** The refusal of a chat with an earlier call whose arguments are no JSON object: vLLM parses them. */
function brokenCallIn({ endpoint, body }: OpenedRequest): string | undefined {
  const messages = body.kind === 'json' ? body.value['messages'] : undefined;
  if (endpoint.name !== 'chat' || !Array.isArray(messages)) return undefined;
  const isBroken = messages.flatMap((message) => memberOf(message, 'tool_calls') ?? []).some(isBrokenCall);
  return isBroken ? 'the arguments of a tool call are not a JSON object' : undefined;
}

/** Throws config_invalid if the transcripts cannot be read. `now` in ms since 1970. */
export function createModel(
  { backend, transcripts, anyName = true, edits }: ModelOptions,
  now: () => number,
) {
  const scripted = loadTranscripts(transcripts);
  const names = [...scripted.keys()];

  async function builtIn(request: OpenedRequest, signal: AbortSignal): Promise<ModelResponse> {
    const { endpoint, body, stream } = request;
    if (body.kind === 'raw') return unstructuredResponse(body.bytes, body.contentType);
    const name = baseModel(request.model);
    const asked = body.kind === 'json' ? body.value : {};
    if (!anyName && !isServed(name, names)) {
      const message = `The model \`${name}\` does not exist. This simulator has ${namesOf(names).join(', ')}.`;
      return unary(404, openaiError(404, message, { type: 'NotFoundError', param: 'model' }));
    }
    const transcript = scripted.get(name);
    if (transcript !== undefined) return transcriptResponse(transcript, asked, stream, signal);
    const message = (anyName ? undefined : missingIn(request)) ?? brokenCallIn(request);
    const refused = message ?? refusalBy(name, asked);
    const refusal: Turn[] = refused === undefined ? [] : [{ kind: 'error', status: 400, message: refused }];
    const options = { stream, now, signal };
    if (endpoint.name === 'completions') {
      const turns = [...refusal, ...turnsOf(name, asked)];
      return openaiResponse(
        'completions',
        turns.map((each) => withinLimit(each, asked)),
        asked,
        options,
      );
    }
    const turn = refusal[0] ?? withinLimit(turnOf(name, asked, edits), asked);
    if (body.kind === 'form') return transcriptionResponse(turn, body.parts, options);
    if (endpoint.name === 'messages') return anthropicResponse(turn, asked, options);
    if (endpoint.name === 'chat') return openaiResponse('chat', [turn], asked, options);
    return turn.kind === 'error'
      ? unary(turn.status, openaiError(turn.status))
      : embeddingsResponse(asked, now);
  }

  return {
    /**
     * Responds to a decrypted request. When `signal` aborts, it stops generating and rejects with AbortError.
     */
    async respond(request: OpenedRequest, signal: AbortSignal): Promise<ModelResponse> {
      const body = forModel(request);
      const response =
        backend === undefined
          ? await builtIn({ ...request, body }, signal)
          : await backendResponse(backend, 'POST', request.target, withBaseName(body, request.model), signal);
      return request.endpoint.name === 'chat' ? altered(response, [MIRRORS]) : response;
    },
    /** Responds to `/v1/models` and `/v1/models/{id}`. */
    async list(endpoint: Endpoint, target: string, signal: AbortSignal): Promise<ModelResponse> {
      if (backend !== undefined) return backendResponse(backend, 'GET', target, undefined, signal);
      if (endpoint.name === 'models')
        return unary(200, { object: 'list', data: namesOf(names).map(modelEntry) });
      const id = querystring.unescape(target.split('?', 1)[0]!.slice('/v1/models/'.length));
      if (isServed(id, names)) return unary(200, modelEntry(id));
      const error = { message: `The model '${id}' does not exist`, param: 'model', code: 'model_not_found' };
      return unary(404, { error: { ...error, type: 'invalid_request_error' } });
    },
  };
}
