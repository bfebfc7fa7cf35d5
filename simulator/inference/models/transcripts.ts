/**
 * Scripted models: a JSON file that maps model names to recorded responses.
 *
 *     { "my-model": { "events": [ { "delayMs": 5, "event": "ping", "data": { … } }, { "data": "[DONE]" } ],
 *                     "unary":  { "status": 200, "delayMs": 5, "body": { … } } } }
 *
 * `events` answers a streaming request, `unary` any other; `"turns": [ … ]` in place of both holds one of
 * these for each answer of a tool. `data` that is a text goes out as it is.
 */
import { readFileSync } from 'node:fs';
import { PrivatemodeError } from '../../../lib/errors.ts';
import { reasonOf } from '../../../lib/files/path-refusal.ts';
import { pause } from '../pacing.ts';
import { isObject, type JsonObject } from '../request.ts';
import { openaiError } from './openai.ts';
import { type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import { countToolResults } from './tools.ts';

interface ScriptedEvent {
  readonly delayMs?: number;
  readonly event?: string;
  readonly data: unknown;
}

interface Transcript {
  readonly turns?: readonly Transcript[];
  readonly events?: readonly ScriptedEvent[];
  readonly unary?: { readonly status?: number; readonly delayMs?: number; readonly body: unknown };
}

const isTable = (value: unknown): value is JsonObject => isObject(value) && !Array.isArray(value);

function isTranscript(value: unknown): value is Transcript {
  if (!isTable(value)) return false;
  const { events = [], unary: whole = { body: '' }, turns } = value;
  if (turns !== undefined) return Array.isArray(turns) && turns.length > 0 && turns.every(isTranscript);
  const areEvents = Array.isArray(events) && events.every((item) => isTable(item) && 'data' in item);
  return areEvents && isTable(whole) && 'body' in whole;
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
  const models = isTable(parsed) ? Object.entries(parsed) : [['file', undefined] as const];
  return new Map(
    models.map(([model, value]) => {
      if (isTranscript(value)) return [model, value];
      throw new PrivatemodeError('config_invalid', `${path}: the transcript of ${model} is malformed`);
    }),
  );
}

async function* replay(events: readonly ScriptedEvent[], signal: AbortSignal): AsyncGenerator<ModelEvent> {
  for (const { delayMs, event, data } of events) {
    if (delayMs !== undefined && delayMs > 0) await pause(delayMs, signal);
    signal.throwIfAborted();
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    yield { ...(event !== undefined && { event }), data: text };
  }
}

/**
 * The recorded response to a request, chosen by how many tools have responded in its messages. If the
 * transcript lacks the kind asked for, the model server responds with 404.
 */
export async function transcriptResponse(
  { turns = [], ...only }: Transcript,
  request: JsonObject,
  streaming: boolean,
  signal: AbortSignal,
): Promise<ModelResponse> {
  const answered = countToolResults(request['messages']);
  const { events, unary: whole } = turns[Math.min(answered, turns.length - 1)] ?? only;
  if (streaming && events !== undefined) return stream(replay(events, signal));
  if (whole === undefined) return unary(404, openaiError(404, 'this transcript has no such answer'));
  if (whole.delayMs !== undefined) await pause(whole.delayMs, signal);
  return unary(whole.status ?? 200, whole.body);
}
