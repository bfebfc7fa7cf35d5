/** Reads a multipart form while it arrives: parts as lists of chunks, nothing decoded, nothing but short chunks copied. */
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { PrivatemodeError } from '../../errors.ts';
import { type ByteChain, createByteChain } from '../json/byte-chain.ts';

export interface FormParts {
  /** Value fields by name, as raw bytes. */
  readonly values: ReadonlyMap<string, readonly Uint8Array[]>;
  /** Files by name of their field; file name and content type do not reach the service (inference.md 6.3). */
  readonly files: ReadonlyMap<string, readonly Uint8Array[]>;
}

export interface FormReader {
  /** Throws repeated_form_field or invalid_multipart, as soon as it is known. */
  feed(chunk: Uint8Array): void;
  /** Rejects with the same; also where the form is cut off. */
  finish(): Promise<FormParts>;
}

/** Fields and files: each costs a stream here and a cipher context when it is sealed. */
export const MAX_FORM_PARTS = 1000;
const LIMITS = {
  parts: MAX_FORM_PARTS,
  files: MAX_FORM_PARTS,
  fields: 0, // every part counts as a file
  fileSize: Number.POSITIVE_INFINITY, // the body as a whole is limited
  headerPairs: 2000, // of a part
  headerSize: 80 * 1024, // bytes
};

const IDENTITY_ENCODINGS = new Set(['7bit', '8bit', 'binary']);

const invalid = (words: string, cause?: unknown) =>
  new PrivatemodeError('invalid_multipart', words, cause === undefined ? {} : { cause });

const slicesOf = (parts: ReadonlyMap<string, ByteChain>): Map<string, Uint8Array[]> =>
  new Map([...parts].map(([name, bytes]) => [name, bytes.slices(0, bytes.length)]));

/** Throws invalid_multipart where the content type is no form with a boundary. */
export function createFormReader(contentType: string | undefined): FormReader {
  const values = new Map<string, ByteChain>();
  const files = new Map<string, ByteChain>();
  let failure: PrivatemodeError | undefined;
  const fail = (error: PrivatemodeError): void => {
    failure ??= error;
  };

  const form = /^multipart\/(?:form-data|mixed)(?=\s*;)/i;
  if (contentType === undefined || !form.test(contentType)) {
    throw invalid('the body must be multipart/form-data with a boundary');
  }
  let parser: BusboyInstance;
  try {
    parser = new Busboy({
      headers: { 'content-type': contentType.replace(form, 'multipart/form-data') },
      // As a file every part keeps its bytes; a value field would be decoded by its charset.
      isPartAFile: () => true,
      limits: LIMITS,
    });
  } catch (thrown) {
    throw invalid('the boundary of the form is missing', thrown);
  }

  parser.on('file', (name: string | undefined, stream, fileName: string | undefined, encoding) => {
    const bytes = createByteChain();
    stream.on('data', bytes.push);
    stream.on('error', (error: Error) => fail(invalid('a part of the form is cut off', error)));
    if (name === undefined || name === '') return fail(invalid('a part of the form has no name'));
    if (!IDENTITY_ENCODINGS.has(encoding)) {
      return fail(invalid('a part of the form has a transfer encoding'));
    }
    const parts = fileName === undefined || fileName === '' ? values : files;
    if (parts.has(name)) {
      return fail(new PrivatemodeError('repeated_form_field', 'a field of the form is repeated'));
    }
    parts.set(name, bytes);
  });
  parser.on('partsLimit', () => fail(invalid('the form has too many parts')));
  const ended = new Promise<void>((resolve) => {
    parser.on('finish', resolve);
    parser.on('error', (error: unknown) => {
      fail(invalid('the form is malformed or cut off', error));
      resolve();
    });
  });

  return {
    feed(chunk) {
      if (failure !== undefined) throw failure;
      // Its callback is not waited for: parts are collected anyway, so there is nothing to hold back.
      parser.write(chunk);
    },
    async finish() {
      parser.end();
      await ended;
      if (failure !== undefined) throw failure;
      return { values: slicesOf(values), files: slicesOf(files) };
    },
  };
}
