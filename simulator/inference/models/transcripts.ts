/**
 * Scripted answers: a JSON file that maps model names to recorded responses.
 *
 *     { "my-model": { "events": [ { "delayMs": 5, "event": "ping", "data": { … } }, { "data": "[DONE]" } ],
 *                     "unary":  { "status": 200, "delayMs": 5, "body": { … } } } }
 *
 * `events` answers a streaming request, `unary` any other; `data` that is a text goes out as it is. `"turns": [ … ]` in their place holds one
 * such answer after the other, for conversations with tools: the first before any tool has answered, the last for all that is left.
 */
import { readFileSync } from 'node:fs';
import { PrivatemodeError } from '../../../lib/errors.ts';
import { pause } from '../pacing.ts';
import type { JsonObject } from '../request.ts';
import { type ModelEvent, type ModelResponse, stream, unary } from './response.ts';

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
    throw new PrivatemodeError('config_invalid', `cannot read the transcripts in ${path}`, { cause });
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

/** The answer to a request, by how many tools have answered in its messages. */
export function turnIn(transcript: Transcript, request: JsonObject): Transcript {
  const { messages } = request as { messages?: unknown };
  const answers = (Array.isArray(messages) ? messages : []).filter(
    (message) => isObject(message) && message['role'] === 'tool',
  );
  return transcript.turns?.[Math.min(answers.length, transcript.turns.length - 1)] ?? transcript;
}

/** The recorded response; a transcript that lacks the kind asked for is a 404 of the model server. */
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
