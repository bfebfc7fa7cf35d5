/** The models endpoint: plain JSON, nothing encrypted in either direction (docs/protocol/inference.md 1). */
import type { JsonObject } from '../request.ts';
import { type ModelResponse, unary } from './response.ts';
import { GPT_OSS, WINDOWS } from './window.ts';

/** Models in the list. Any other `sim-…` name works as well. */
const LISTED = [
  'sim-chat',
  GPT_OSS,
  'sim-20x50',
  'sim-200x0',
  'sim-echo',
  'sim-tools',
  'sim-error-400',
  'sim-64k',
  'sim-128k',
];

const entry = (id: string): JsonObject => ({
  id,
  object: 'model',
  created: 1700000000,
  owned_by: 'simulator',
  tasks: ['generate'],
  ...(WINDOWS.has(id) && { max_model_len: WINDOWS.get(id) }),
});

/** All models, including the scripted ones. */
export const modelList = (scripted: readonly string[]): ModelResponse =>
  unary(200, { object: 'list', data: namesOf(scripted).map(entry) });

/** The names that the list shows. */
export const namesOf = (scripted: readonly string[]): readonly string[] => [...LISTED, ...scripted];

export const isServed = (id: string, scripted: readonly string[]): boolean =>
  scripted.includes(id) || LISTED.includes(id) || id.startsWith('sim-');

/** One model, or the OpenAI error for an unknown one. */
export function modelById(id: string, scripted: readonly string[]): ModelResponse {
  if (isServed(id, scripted)) return unary(200, entry(id));
  return unary(404, {
    error: {
      message: `The model '${id}' does not exist`,
      type: 'invalid_request_error',
      param: 'model',
      code: 'model_not_found',
    },
  });
}
