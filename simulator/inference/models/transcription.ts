/**
 * Transcriptions. The text describes the form that arrived, so that a test can check whether every byte did.
 */
import { createHash } from 'node:crypto';
import type { FormPart } from '../form.ts';
import { paced } from '../pacing.ts';
import { Rejection } from '../rejection.ts';
import { formField, type JsonObject } from '../request.ts';
import { openaiError } from './openai.ts';
import { DONE, data, type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import { newId, type Turn, wordsOf } from './turn.ts';

/** ms between words. The model name can set the pace; the text is cut into words in any case. */
const intervalOf = (turn: Turn): number => (turn.kind === 'text' ? turn.intervalMs : 0);

/** `name=value` for a value field, `name=<bytes> bytes sha256:<hex>` for a file, in the form's order. */
export const describeForm = (parts: readonly FormPart[]): string =>
  parts
    .map(({ name, filename, body }) =>
      filename === undefined
        ? `${name}=${body.toString('utf8')}`
        : `${name}=${body.length} bytes sha256:${createHash('sha256').update(body).digest('hex')}`,
    )
    .join(' ');

async function* chunks(
  text: string,
  model: string,
  created: number,
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<ModelEvent> {
  const id = newId('trsc-');
  const chunk = (choices: readonly JsonObject[], completionTokens: number): ModelEvent =>
    data({
      id,
      object: 'transcription.chunk',
      created,
      model,
      choices,
      usage: { prompt_tokens: 1, total_tokens: 1 + completionTokens, completion_tokens: completionTokens },
    });
  let count = 0;
  for await (const content of paced(wordsOf(text), intervalMs, signal)) {
    yield chunk([{ delta: { content }, finish_reason: null, stop_reason: null }], ++count);
  }
  yield chunk([{ delta: { content: '' }, finish_reason: 'stop', stop_reason: null }], count);
  yield chunk([], count);
  yield DONE;
}

/** Segments, or words if only words were asked for; both members are always present. */
function timesOf(text: string, parts: readonly FormPart[]): JsonObject {
  const asked = formField(parts, 'timestamp_granularities[]');
  if (asked === 'word') return { segments: null, words: wordsOf(text).map(wordAt) };
  const segment = {
    id: 0,
    avg_logprob: -0.5,
    compression_ratio: 1,
    end: 1,
    no_speech_prob: null,
    seek: 0,
    start: 0,
    temperature: 0,
    text,
    tokens: [],
  };
  return { segments: [segment], words: null };
}

const wordAt = (word: string, index: number): JsonObject => ({
  end: index + 1,
  start: index,
  word: word.trim(),
});

/**
 * The response of the transcription endpoint. Throws Rejection for a response_format that is not JSON,
 * because only JSON can be encrypted (docs/protocol/inference.md 6.3). `text` gets the same response as
 * `json` (docs/protocol/grammar.md).
 */
export function transcriptionResponse(
  turn: Turn,
  parts: readonly FormPart[],
  options: { readonly stream: boolean; readonly now: () => number; readonly signal: AbortSignal },
): ModelResponse {
  if (turn.kind === 'error') return unary(turn.status, openaiError(turn.status));
  const format = formField(parts, 'response_format') ?? 'json';
  if (!['json', 'text', 'verbose_json'].includes(format)) {
    throw new Rejection(500, 'encrypting response: decoding JSON: invalid body');
  }
  const text = describeForm(parts.filter(({ name }) => !name.startsWith('stream_')));
  if (options.stream) {
    const created = Math.floor(options.now() / 1000);
    const model = formField(parts, 'model') ?? '';
    return stream(chunks(text, model, created, intervalOf(turn), options.signal));
  }
  if (format !== 'verbose_json') return unary(200, { text, usage: { type: 'duration', seconds: 1 } });
  return unary(200, { duration: '1.0', language: 'en', text, ...timesOf(text, parts) });
}
