/** Reads a multipart form with the runtime's own parser: the twin of form-parts.ts where there are no Node streams. */
import { PrivatemodeError } from '../errors.ts';
import type { FormParts } from './form-parts.ts';

const MAX_PARTS = 1000;

/**
 * Takes a form apart when all of it is here. Throws invalid_multipart where the content type is no form with a boundary. `finish`
 * rejects with repeated_form_field and invalid_multipart.
 */
export function createFormReader(contentType: string | undefined) {
  if (contentType === undefined || !/^multipart\/form-data\s*;.*boundary=/i.test(contentType)) {
    throw new PrivatemodeError('invalid_multipart', 'the body must be multipart/form-data with a boundary');
  }
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  return {
    feed(chunk: Uint8Array): void {
      chunks.push(Uint8Array.from(chunk));
    },
    async finish(): Promise<FormParts> {
      const response = new Response(new Blob(chunks), { headers: { 'content-type': contentType } });
      const form = await response.formData().catch((cause: unknown) => {
        throw new PrivatemodeError('invalid_multipart', 'the form is malformed or cut off', { cause });
      });
      const values = new Map<string, Uint8Array[]>();
      const files = new Map<string, Uint8Array[]>();
      for (const [name, value] of form) {
        const isText = typeof value === 'string';
        const bytes = isText ? new TextEncoder().encode(value) : new Uint8Array(await value.arrayBuffer());
        if (name === '') throw new PrivatemodeError('invalid_multipart', 'a part of the form has no name');
        const parts = isText ? values : files;
        if (parts.has(name)) {
          throw new PrivatemodeError('repeated_form_field', 'a field of the form is repeated');
        }
        parts.set(name, [bytes]);
      }
      if (values.size + files.size > MAX_PARTS) {
        throw new PrivatemodeError('invalid_multipart', 'the form has too many parts');
      }
      return { values, files };
    },
  };
}
