/** Reads a multipart form while it arrives: parts as lists of chunks, nothing decoded, nothing but short chunks copied. */
import { once } from 'node:events';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { PrivatemodeError } from '../errors.ts';
import { type ByteChain, createByteChain } from './json/byte-chain.ts';

export interface FormParts {
  /** Value fields by name, as raw bytes. */
  readonly values: ReadonlyMap<string, readonly Uint8Array[]>;
  /** Files by name of their field; file name and content type do not reach the service (docs/protocol/inference.md 6.3). */
  readonly files: ReadonlyMap<string, readonly Uint8Array[]>;
}

/** Fields and files: each costs a stream here and a cipher context when it is sealed. */
const MAX_PARTS = 1000;
const LIMITS = {
  parts: MAX_PARTS,
  files: MAX_PARTS,
  fields: 0, // every part counts as a file
  fileSize: Number.POSITIVE_INFINITY, // the body as a whole is limited
  headerPairs: 2000, // of a part
  headerSize: 80 * 1024, // bytes
};

const FORM = /^multipart\/(?:form-data|mixed)(?=\s*;)/i;
const IDENTITY_ENCODINGS = new Set(['7bit', '8bit', 'binary']);

const invalid = (message: string, cause?: unknown) =>
  new PrivatemodeError('invalid_multipart', message, cause === undefined ? {} : { cause });

function createParser(contentType: string | undefined): BusboyInstance {
  if (contentType === undefined || !FORM.test(contentType)) {
    throw invalid('the body must be multipart/form-data with a boundary');
  }
  try {
    return new Busboy({
      headers: { 'content-type': contentType.replace(FORM, 'multipart/form-data') },
      // As a file every part keeps its bytes; a value field would be decoded by its charset.
      isPartAFile: () => true,
      limits: LIMITS,
    });
  } catch (thrown) {
    throw invalid('the boundary of the form is missing', thrown);
  }
}

const slicesOf = (parts: ReadonlyMap<string, ByteChain>): Map<string, Uint8Array[]> =>
  new Map([...parts].map(([name, bytes]) => [name, bytes.slices(0, bytes.length)]));

/**
 * Takes a form apart. Throws invalid_multipart where the content type is no form with a boundary. `feed` throws, and `finish`
 * rejects with, repeated_form_field and invalid_multipart, as soon as it is known; `finish` also where the form is cut off.
 */
export function createFormReader(contentType: string | undefined) {
  const values = new Map<string, ByteChain>();
  const files = new Map<string, ByteChain>();
  const parser = createParser(contentType);
  let failure: PrivatemodeError | undefined;
  const fail = (message: string, cause?: unknown): void => {
    failure ??= invalid(message, cause);
  };

  parser.on('file', (name: string | undefined, stream, fileName: string | undefined, encoding) => {
    const bytes = createByteChain();
    stream.on('data', bytes.push);
    stream.on('error', (error: Error) => fail('a part of the form is cut off', error));
    if (name === undefined || name === '') return fail('a part of the form has no name');
    if (!IDENTITY_ENCODINGS.has(encoding)) return fail('a part of the form has a transfer encoding');
    const parts = fileName === undefined || fileName === '' ? values : files;
    if (parts.has(name)) {
      failure ??= new PrivatemodeError('repeated_form_field', 'a field of the form is repeated');
    } else parts.set(name, bytes);
  });
  parser.on('partsLimit', () => fail('the form has too many parts'));
  parser.on('error', (error: unknown) => fail('the form is malformed or cut off', error));
  const ended = once(parser, 'finish').catch(() => {}); // or the error above

  return {
    feed(chunk: Uint8Array): void {
      if (failure !== undefined) throw failure;
      // Its callback is not waited for: parts are collected anyway, so there is nothing to hold back.
      parser.write(chunk);
    },
    async finish(): Promise<FormParts> {
      parser.end();
      await ended;
      if (failure !== undefined) throw failure;
      return { values: slicesOf(values), files: slicesOf(files) };
    },
  };
}
