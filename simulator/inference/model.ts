/** Which model answers a decrypted request: the backend if there is one, a transcript, or a built-in model. */
import type { ModelOptions } from '../context.ts';
import { forModel } from './admission.ts';
import { backendAnswer } from './backend.ts';
import type { Endpoint } from './endpoints.ts';
import { baseModel } from './faults.ts';
import { withMember } from './json-text.ts';
import { type ModelAnswer, unary } from './models/answer.ts';
import { anthropicAnswer } from './models/anthropic.ts';
import { embeddingsAnswer } from './models/embeddings.ts';
import { modelById, modelList } from './models/list.ts';
import { openaiAnswer, openaiError } from './models/openai.ts';
import { transcriptionAnswer } from './models/transcription.ts';
import { loadTranscripts, transcriptAnswer } from './models/transcripts.ts';
import { turnOf, turnsOf } from './models/turn.ts';
import { unstructuredAnswer } from './models/unstructured.ts';
import { mirrorReasoning } from './reasoning.ts';
import type { OpenedBody, OpenedRequest } from './request.ts';

export interface Model {
  /** Answers a decrypted request; stops generating and rejects with AbortError when `signal` aborts. */
  answer(request: OpenedRequest, signal: AbortSignal): Promise<ModelAnswer>;
  /** Answers `/v1/models` and `/v1/models/{id}`. */
  list(endpoint: Endpoint, target: string, signal: AbortSignal): Promise<ModelAnswer>;
}

/** A backend does not know the faults asked for by name. */
function withBaseName(body: OpenedBody, model: string): OpenedBody {
  const name = baseModel(model);
  if (name === model || body.kind === 'raw') return body;
  if (body.kind === 'json') return { ...body, text: withMember(body.text, 'model', JSON.stringify(name)) };
  const parts = body.parts.map((part) =>
    part.name === 'model' ? { ...part, body: Buffer.from(name) } : part,
  );
  return { kind: 'form', parts };
}

/** The model id at the end of a path; one that is not well escaped is taken literally. */
function idOf(target: string): string {
  const escaped = target.split('?', 1)[0]!.slice('/v1/models/'.length);
  try {
    return decodeURIComponent(escaped);
  } catch {
    return escaped;
  }
}

/** Throws config_invalid if the transcripts cannot be read. `now` in ms since 1970. */
export function createModel({ backend, transcripts }: ModelOptions, now: () => number): Model {
  const scripted = loadTranscripts(transcripts);

  async function builtIn(request: OpenedRequest, signal: AbortSignal): Promise<ModelAnswer> {
    const { endpoint, body, stream } = request;
    if (body.kind === 'raw') return unstructuredAnswer(body.bytes, body.contentType);
    const transcript = scripted.get(baseModel(request.model));
    if (transcript !== undefined) return transcriptAnswer(transcript, stream, signal);
    if (endpoint.name === 'completions' && body.kind === 'json') {
      const turns = turnsOf(baseModel(request.model), body.value);
      return openaiAnswer('completions', turns, body.value, { stream, now, signal });
    }
    const turn = turnOf(baseModel(request.model), body.kind === 'json' ? body.value : {});
    if (body.kind === 'form') return transcriptionAnswer(turn, body.parts, { stream, now, signal });
    if (endpoint.name === 'messages') return anthropicAnswer(turn, body.value, { stream, signal });
    if (endpoint.name === 'chat') {
      return openaiAnswer('chat', [turn], body.value, { stream, now, signal });
    }
    return turn.kind === 'error'
      ? unary(turn.status, openaiError(turn.status))
      : embeddingsAnswer(body.value, now);
  }

  return {
    async answer(request, signal) {
      const body = forModel(request);
      const answer =
        backend === undefined
          ? await builtIn({ ...request, body }, signal)
          : await backendAnswer(backend, 'POST', request.target, withBaseName(body, request.model), signal);
      return request.endpoint.name === 'chat' ? mirrorReasoning(answer) : answer;
    },
    async list(endpoint, target, signal) {
      if (backend !== undefined) return backendAnswer(backend, 'GET', target, undefined, signal);
      if (endpoint.name === 'models') return modelList([...scripted.keys()]);
      return modelById(idOf(target), [...scripted.keys()]);
    },
  };
}
