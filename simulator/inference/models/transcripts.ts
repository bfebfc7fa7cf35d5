/**
 * Scripted models: a JSON file that maps model names to recorded responses.
 *
 *     { "my-model": { "events": [ { "delayMs": 5, "event": "ping", "data": { … } }, { "data": "[DONE]" } ],
 *                     "unary":  { "status": 200, "delayMs": 5, "body": { … } } } }
 *
 * `events` is the response to a streaming request, `unary` to any other. `data` that is a text goes out as it
 * is. In place of both, `"turns": [ … ]` holds a list of such responses, for conversations with tools: the
 * first is used before any tool has responded, each result takes the next, and the last serves all further
 * requests.
 */
import { readFileSync } from 'node:fs';
import { PrivatemodeError } from '../../../lib/errors.ts';
import { reasonOf } from '../../../lib/files/path-refusal.ts';
import { pause } from '../pacing.ts';
import type { JsonObject } from '../request.ts';
import { type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import { countToolResults } from './tools.ts';

interface ScriptedEvent {
  readonly delayMs?: number;
  readonly event?: string;
  readonly data: unknown;
}

export interface Transcript {
  readonly turns?: readonly Transcript[];
  readonly events?: readonly ScriptedEvent[];
  readonly unary?: { readonly status?: number; readonly delayMs?: number; readonly body: unknown };
}

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function isTranscript(value: unknown): value is Transcript {
  if (!isObject(value)) return false;
  const { events, unary: whole, turns } = value as { events?: unknown; unary?: unknown; turns?: unknown };
  if (turns !== undefined) return Array.isArray(turns) && turns.length > 0 && turns.every(isTranscript);
  const goodEvents = Array.isArray(events) && events.every((item) => isObject(item) && 'data' in item);
  return (
    (goodEvents || events === undefined) && (whole === undefined || (isObject(whole) && 'body' in whole))
  );
}

/** Reads the file; without a path there are no transcripts. Throws config_invalid. */
export function loadTranscripts(path: string | undefined): ReadonlyMap<string, Transcript> {
  if (path === undefined) return new Map();
  let parsed: unknown;
  try {
    parsed = JSON.parse(readFileSync(path, 'utf8'));
  } catch (cause) {
    const why = cause instanceof SyntaxError ? 'it is no JSON' : reasonOf(cause);
    throw new PrivatemodeError('config_invalid', `cannot read the transcripts in ${path}: ${why}`, { cause });
  }
  if (!isObject(parsed)) throw new PrivatemodeError('config_invalid', `${path} is not a map of transcripts`);
  const transcripts = new Map<string, Transcript>();
  for (const [model, value] of Object.entries(parsed)) {
    if (!isTranscript(value)) {
      throw new PrivatemodeError('config_invalid', `${path}: the transcript of ${model} is malformed`);
    }
    transcripts.set(model, value);
  }
  return transcripts;
}

async function* replay(events: readonly ScriptedEvent[], signal: AbortSignal): AsyncGenerator<ModelEvent> {
  for (const { delayMs, event, data } of events) {
    if (delayMs !== undefined && delayMs > 0) await pause(delayMs, signal);
    signal.throwIfAborted();
    yield {
      ...(event !== undefined && { event }),
      data: typeof data === 'string' ? data : JSON.stringify(data),
    };
  }
}

/** The recorded response to a request, chosen by how many tools have responded in its messages. */
export function turnIn(transcript: Transcript, request: JsonObject): Transcript {
  const { turns = [] } = transcript;
  return turns[Math.min(countToolResults(request['messages']), turns.length - 1)] ?? transcript;
}

/** The recorded response. If the transcript lacks the kind asked for, the model server responds with 404. */
export async function transcriptResponse(
  transcript: Transcript,
  streaming: boolean,
  signal: AbortSignal,
): Promise<ModelResponse> {
  if (streaming && transcript.events !== undefined) return stream(replay(transcript.events, signal));
  const whole = transcript.unary;
  if (whole === undefined) {
    return unary(404, {
      error: { message: 'this transcript has no such answer', type: 'NotFoundError', code: 404 },
    });
  }
  if (whole.delayMs !== undefined) await pause(whole.delayMs, signal);
  return unary(whole.status ?? 200, whole.body);
}
