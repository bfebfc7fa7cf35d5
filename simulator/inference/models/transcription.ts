/** Transcriptions. The text describes the form, so that a test can check whether every byte arrived. */
import { createHash } from 'node:crypto';
import { paced } from '../pacing.ts';
import { Rejection } from '../rejection.ts';
import { type FormPart, formField, type JsonObject } from '../request.ts';
import { openaiError, usageOf } from './openai.ts';
import { DONE, data, type ModelEvent, type ModelResponse, stream, unary } from './response.ts';
import { intervalOf, newId, type Turn, wordsOf } from './turn.ts';

/** `name=value` for a value field, `name=<bytes> bytes sha256:<hex>` for a file, in the form's order. */
const describeForm = (parts: readonly FormPart[]): string =>
  parts
    .map(({ name, filename, body }) =>
      filename === undefined
        ? `${name}=${body.toString('utf8')}`
        : `${name}=${body.length} bytes sha256:${createHash('sha256').update(body).digest('hex')}`,
    )
    .join(' ');

interface Options {
  readonly stream: boolean;
  /** In ms since 1970. */
  readonly now: () => number;
  readonly signal: AbortSignal;
}

async function* chunks(
  text: string,
  model: string,
  interval: number,
  { now, signal }: Options,
): AsyncGenerator<ModelEvent> {
  const [id, created] = [newId('trsc-'), Math.floor(now() / 1000)];
  const chunk = (choices: readonly JsonObject[], tokens: number): ModelEvent =>
    data({ id, object: 'transcription.chunk', created, model, choices, usage: usageOf(1, tokens) });
  let count = 0;
  for await (const content of paced(wordsOf(text), interval, signal)) {
    yield chunk([{ delta: { content }, finish_reason: null, stop_reason: null }], ++count);
  }
  yield chunk([{ delta: { content: '' }, finish_reason: 'stop', stop_reason: null }], count);
  yield chunk([], count);
  yield DONE;
}

/** What `verbose_json` adds. */
function timesOf(text: string): JsonObject {
  const figures = { avg_logprob: -0.5, compression_ratio: 1, no_speech_prob: null, temperature: 0 };
  return { segments: [{ id: 0, ...figures, end: 1, seek: 0, start: 0, text, tokens: [] }], words: null };
}

/**
 * The response of the transcription endpoint. Throws Rejection for a response_format that is not JSON,
 * because only JSON can be encrypted (docs/protocol/inference.md 6.3). `text` gets the same response as
 * `json` (docs/protocol/grammar.md).
 */
export function transcriptionResponse(
  turn: Turn,
  parts: readonly FormPart[],
  options: Options,
): ModelResponse {
  if (turn.kind === 'error') return unary(turn.status, openaiError(turn.status));
  const format = formField(parts, 'response_format') ?? 'json';
  if (!['json', 'text', 'verbose_json'].includes(format))
    throw new Rejection(500, 'encrypting response: decoding JSON: invalid body');
  const text = describeForm(parts.filter(({ name }) => !name.startsWith('stream_')));
  if (options.stream) return stream(chunks(text, formField(parts, 'model') ?? '', intervalOf(turn), options));
  if (format !== 'verbose_json') return unary(200, { text, usage: { type: 'duration', seconds: 1 } });
  return unary(200, { duration: '1.0', language: 'en', text, ...timesOf(text) });
}
