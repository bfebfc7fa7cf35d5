/** Document elements for the unstructured endpoint: the first one describes the body that arrived. */
import { createHash } from 'node:crypto';
import type { JsonObject } from '../request.ts';
import { type ModelAnswer, unary } from './answer.ts';

/** More than ten, so that index-text order (0, 1, 10, 11, 2 …) differs from numeric order. */
const ELEMENTS = 12;

const element = (index: number, type: string, text: string, metadata: JsonObject): JsonObject => ({
  type,
  element_id: createHash('sha256').update(`${index}${text}`).digest('hex').slice(0, 32),
  text,
  metadata,
});

export function unstructuredAnswer(bytes: Buffer, contentType: string): ModelAnswer {
  const digest = createHash('sha256').update(bytes).digest('hex');
  const title = element(0, 'Title', `${bytes.length} bytes sha256:${digest}`, { content_type: contentType });
  const rest = Array.from({ length: ELEMENTS - 1 }, (_, index) =>
    element(index + 1, 'NarrativeText', `paragraph ${index + 1}`, { page_number: 1 }),
  );
  return unary(200, [title, ...rest]);
}
