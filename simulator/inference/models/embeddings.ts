/** Embeddings that depend only on the input, so that a test can check whether the right text arrived. */
import { createHash } from 'node:crypto';
import type { JsonObject } from '../request.ts';
import { type ModelResponse, unary } from './response.ts';
import { countTokens, newId } from './turn.ts';

const DEFAULT_DIMENSIONS = 16;
const MAX_DIMENSIONS = 4096;

/** A unit vector of float32 values, derived from the text by SHA-256 in counter mode. */
export function vectorOf(text: string, dimensions: number): Float32Array {
  const vector = Float32Array.from({ length: dimensions }, (_, index) => {
    const digest = createHash('sha256').update(`${index}:`).update(text).digest();
    return digest.readInt32LE(0) / 2 ** 31;
  });
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
}

/** The inputs of a request: one text, many texts, or token numbers in place of a text. */
function inputsOf(input: unknown): string[] {
  if (!Array.isArray(input)) return [String(input)];
  if (input.every((item) => typeof item === 'number')) return [JSON.stringify(input)];
  return input.map((item) => (typeof item === 'string' ? item : JSON.stringify(item)));
}

/** Little-endian float32 values as base64, or plain numbers. */
const encoded = (vector: Float32Array, format: unknown): string | number[] =>
  format === 'base64' ? Buffer.from(vector.buffer).toString('base64') : [...vector];

export function embeddingsResponse(request: JsonObject, now: () => number): ModelResponse {
  const { input, model, encoding_format: format } = request;
  const asked = Number(request['dimensions'] ?? DEFAULT_DIMENSIONS);
  const dimensions = Math.min(Math.max(Math.trunc(asked) || DEFAULT_DIMENSIONS, 1), MAX_DIMENSIONS);
  const tokens = countTokens(input);
  const data = inputsOf(input).map((text, index) => {
    return { index, object: 'embedding', embedding: encoded(vectorOf(text, dimensions), format) };
  });
  const usage = { prompt_tokens: tokens, total_tokens: tokens, completion_tokens: 0 };
  const created = Math.floor(now() / 1000);
  return unary(200, { id: newId('embd-'), object: 'list', created, model, data, usage });
}
