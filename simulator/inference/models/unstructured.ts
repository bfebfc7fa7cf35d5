/** Document elements for the unstructured endpoint. The first element describes the body that arrived. */
import { createHash } from 'node:crypto';
import { boundaryOf, parseForm } from '../form.ts';
import { Rejection } from '../rejection.ts';
import type { JsonObject } from '../request.ts';
import { type ModelResponse, unary } from './response.ts';

/** More than ten, so that index-text order (0, 1, 10, 11, 2 …) differs from numeric order. */
const ELEMENTS = 12;

const element = (index: number, type: string, text: string, metadata: JsonObject): JsonObject => ({
  type,
  element_id: createHash('sha256').update(`${index}${text}`).digest('hex').slice(0, 32),
  text,
  metadata,
});

/** The elements of one document; the first one describes its bytes. */
function elementsOf(bytes: Buffer, contentType: string): readonly JsonObject[] {
  const digest = createHash('sha256').update(bytes).digest('hex');
  const title = element(0, 'Title', `${bytes.length} bytes sha256:${digest}`, { content_type: contentType });
  const rest = Array.from({ length: ELEMENTS - 1 }, (_, index) =>
    element(index + 1, 'NarrativeText', `paragraph ${index + 1}`, { page_number: 1 }),
  );
  return [title, ...rest];
}

/** The files of a form; none where the body is no form. */
function filesOf(bytes: Buffer, contentType: string): readonly Buffer[] {
  try {
    const parts = parseForm(bytes, boundaryOf(contentType));
    return parts.filter(({ name }) => name === 'files').map(({ body }) => body);
  } catch (error) {
    if (error instanceof Rejection) return [];
    throw error;
  }
}

/** An array of elements that describes the body; for a form with several files, an array per file. */
export function unstructuredResponse(bytes: Buffer, contentType: string): ModelResponse {
  const files = filesOf(bytes, contentType);
  if (files.length < 2) return unary(200, elementsOf(bytes, contentType));
  return unary(
    200,
    files.map((file) => elementsOf(file, contentType)),
  );
}
