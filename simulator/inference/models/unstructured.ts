/** Document elements for the unstructured endpoint. The first element describes the body that arrived. */
import { createHash } from 'node:crypto';
import { type ModelResponse, unary } from './response.ts';

/** More than ten, so that index-text order (0, 1, 10, 11, 2 …) differs from numeric order. */
const ELEMENTS = 12;

const sha256 = (bytes: string | Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** An array of elements that describes the body. */
export function unstructuredResponse(bytes: Buffer, contentType: string): ModelResponse {
  const element = (_: unknown, index: number) => {
    const isTitle = index === 0;
    const text = isTitle ? `${bytes.length} bytes sha256:${sha256(bytes)}` : `paragraph ${index}`;
    return {
      type: isTitle ? 'Title' : 'NarrativeText',
      element_id: sha256(`${index}${text}`).slice(0, 32),
      text,
      metadata: isTitle ? { content_type: contentType } : { page_number: 1 },
    };
  };
  return unary(200, Array.from({ length: ELEMENTS }, element));
}
