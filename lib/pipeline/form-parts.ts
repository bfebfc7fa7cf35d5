/**
 * Reads a multipart form (RFC 7578, RFC 2046 5.1) while it arrives. Parts are lists of chunks: nothing is
 * decoded, and only short chunks are copied. A runtime's own `formData()` would change bytes that are not
 * UTF-8, undo transfer encodings, and differ from that of the next runtime.
 */
import { PrivatemodeError } from '../errors.ts';
import { type ByteChain, createByteChain } from './json/byte-chain.ts';

export interface FormParts {
  /** Value fields by name, as raw bytes. */
  readonly values: ReadonlyMap<string, readonly Uint8Array[]>;
  /**
   * Files by name of their field; file name and content type do not reach the service
   * (docs/protocol/inference.md 6.3).
   */
  readonly files: ReadonlyMap<string, readonly Uint8Array[]>;
}

/**
 * Most characters of a boundary (RFC 2046 5.1.1). About as many at the end of each chunk are looked at again
 * with the next chunk.
 */
const MAX_BOUNDARY = 70;
/** Most fields and files of a form: each costs a cipher context when it is sealed. */
const MAX_PARTS = 1000;
/** Bytes of the header lines of one part. */
const MAX_HEAD_BYTES = 16 * 1024;

const FORM = /^multipart\/(?:form-data|mixed)\s*(?=;)/i;
const DISPOSITION = /^form-data[ \t]*(?:;|$)/i;
/** One parameter: its name, and its value quoted or not. */
const PARAMETER = /[ \t]*;[ \t]*([^\s;=]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/gsy;
const IDENTITY_ENCODINGS = new Set(['7bit', '8bit', 'binary']);
/** RFC 9110 5.6.2: the name of a header. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
/** Control characters in the value of a header, where a tab is allowed. */
const CONTROL = /[\0-\x08\x0a-\x1f\x7f]/;
const CR = 0x0d;
const LF = 0x0a;
const EMPTY = Buffer.alloc(0);
const LINE_END = Buffer.from('\r\n');
const HEAD_END = Buffer.from('\r\n\r\n');

const invalid = (message: string, cause?: unknown) =>
  new PrivatemodeError('invalid_multipart', message, cause === undefined ? {} : { cause });
const malformed = (cause?: unknown) => invalid('the form is malformed or cut off', cause);

const bufferOf = ({ buffer, byteOffset, length }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, length);

/** The parameters after the first `;`, by lower-case name. Throws invalid_multipart. */
function parametersOf(text: string): Map<string, string> {
  const found = new Map<string, string>();
  let end = 0;
  for (const [all, name = '', quoted, bare] of text.matchAll(PARAMETER)) {
    const key = name.toLowerCase();
    if (found.has(key)) throw malformed();
    found.set(key, quoted?.replace(/\\(["\\])/g, '$1') ?? bare ?? '');
    end += all.length;
  }
  if (!/^[ \t]*;?[ \t]*$/.test(text.slice(end))) throw malformed();
  return found;
}

/**
 * The value of a parameter, written as `name` or as `name*` (RFC 8187 3.2); undefined if the part has
 * neither. Throws invalid_multipart.
 */
function decodedParameter(parameters: ReadonlyMap<string, string>, name: string): string | undefined {
  const extended = parameters.get(`${name}*`);
  if (extended === undefined) return parameters.get(name);
  const encoded = /^utf-8'[^']*'(.*)$/i.exec(extended)?.[1];
  try {
    return decodeURIComponent(encoded ?? '%');
  } catch (cause) {
    throw malformed(cause);
  }
}

function boundaryOf(contentType: string | undefined): string {
  const type = contentType === undefined ? null : FORM.exec(contentType);
  if (contentType === undefined || type === null) {
    throw invalid('the body must be multipart/form-data with a boundary');
  }
  const boundary = parametersOf(contentType.slice(type[0].length)).get('boundary');
  if (!boundary || boundary.length > MAX_BOUNDARY) {
    throw invalid(`the form must have a boundary of 1 to ${MAX_BOUNDARY} characters`);
  }
  return boundary;
}

/** The header lines of a part, by lower-case name. Throws invalid_multipart for folded and repeated ones. */
function headersOf(head: Buffer): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of head.toString('utf8').split('\r\n').slice(1)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(colon, 0)).toLowerCase();
    const value = line.slice(colon + 1).replace(/^[ \t]+|[ \t]+$/g, '');
    if (!TOKEN.test(name) || CONTROL.test(value) || headers.has(name)) throw malformed();
    headers.set(name, value);
  }
  return headers;
}

/**
 * Takes a form apart. Throws invalid_multipart if the content type is not a form with a boundary. A fault in
 * the form (repeated_form_field or invalid_multipart) is noted when it arrives: the next `feed` throws it, or
 * `finish` rejects with it. `finish` also rejects if the form is cut off.
 */
export function createFormReader(contentType: string | undefined) {
  const delimiter = Buffer.from(`\r\n--${boundaryOf(contentType)}`, 'utf8');
  const values = new Map<string, ByteChain>();
  const files = new Map<string, ByteChain>();
  let failure: PrivatemodeError | undefined;
  let state: 'content' | 'line' | 'head' | 'end' = 'content';
  let parts = 0;
  /** The part that the content belongs to; undefined before the first one. */
  let part: ByteChain | undefined;
  /**
   * Bytes that cannot be judged yet. They begin with a line end, because a form may begin with its delimiter,
   * as if after one.
   */
  let rest: Buffer = LINE_END;

  /**
   * Each step takes the bytes that have arrived. It returns those that it leaves to the next step, or
   * undefined if it needs more.
   */
  const steps = {
    content(chunk: Buffer): Buffer | undefined {
      const keep = delimiter.length - 1;
      const seam = Buffer.concat([rest, chunk.subarray(0, keep)]); // a delimiter may lie across two chunks
      const early = seam.indexOf(delimiter);
      if (early >= 0) {
        take(seam.subarray(0, early));
        return leave('line', chunk.subarray(early + delimiter.length - rest.length));
      }
      if (chunk.length < keep) {
        const sure = Math.max(0, seam.length - keep);
        take(seam.subarray(0, sure));
        rest = seam.subarray(sure);
        return undefined;
      }
      take(rest);
      const at = chunk.indexOf(delimiter);
      const end = at >= 0 ? at : chunk.length - keep;
      take(chunk.subarray(0, end));
      if (at >= 0) return leave('line', chunk.subarray(at + delimiter.length));
      rest = Buffer.from(chunk.subarray(end));
      return undefined;
    },
    /** What follows a delimiter on its line: `--` after the last part, else blanks. */
    line(chunk: Buffer): Buffer | undefined {
      const bytes = joined(chunk);
      if (bytes.toString('latin1', 0, 2) === '--') return leave('end', EMPTY);
      const end = bytes.indexOf(LINE_END);
      if (end >= 0 && bytes.toString('latin1', 0, end).trim() === '') {
        return leave('head', bytes.subarray(end));
      }
      return wait(bytes, end < 0);
    },
    /** From the line end before the first header to the empty line. */
    head(chunk: Buffer): Buffer | undefined {
      const bytes = joined(chunk);
      const end = bytes.indexOf(HEAD_END);
      if (end < 0) return wait(bytes, true);
      part = begin(headersOf(bytes.subarray(0, end)));
      return leave('content', bytes.subarray(end + HEAD_END.length));
    },
  };

  /**
   * Takes content of the current part. Only line ends may come before the first part: other bytes could be a
   * part that lost its boundary.
   */
  function take(bytes: Buffer): void {
    if (part !== undefined) part.push(bytes);
    else if (bytes.some((byte) => byte !== CR && byte !== LF))
      throw invalid('there is text before the first part of the form');
  }

  const joined = (chunk: Buffer): Buffer => (rest.length === 0 ? chunk : Buffer.concat([rest, chunk]));

  function leave(next: typeof state, bytes: Buffer): Buffer {
    state = next;
    rest = EMPTY;
    return bytes;
  }

  function wait(bytes: Buffer, mayBeGood: boolean): undefined {
    if (!mayBeGood || bytes.length > MAX_HEAD_BYTES) throw malformed();
    rest = Buffer.from(bytes);
  }

  /** Begins a part. It must say that it is a field, because the service would drop any other part. */
  function begin(headers: ReadonlyMap<string, string>): ByteChain {
    if (++parts > MAX_PARTS) throw invalid('the form has too many parts');
    const disposition = headers.get('content-disposition') ?? '';
    if (!DISPOSITION.test(disposition)) throw invalid('a part of the form is no field');
    const parameters = parametersOf(disposition.slice('form-data'.length));
    const name = decodedParameter(parameters, 'name');
    if (name === undefined || name === '') throw invalid('a part of the form has no name');
    const encoding = headers.get('content-transfer-encoding')?.toLowerCase();
    if (encoding !== undefined && !IDENTITY_ENCODINGS.has(encoding)) {
      throw invalid('a part of the form has a transfer encoding');
    }
    const known = decodedParameter(parameters, 'filename') ? files : values;
    if (known.has(name)) throw new PrivatemodeError('repeated_form_field', 'a field of the form is repeated');
    const bytes = createByteChain();
    known.set(name, bytes);
    return bytes;
  }

  return {
    feed(chunk: Uint8Array): void {
      if (failure !== undefined) throw failure;
      let left: Buffer | undefined = bufferOf(chunk);
      try {
        while (left !== undefined && state !== 'end') left = steps[state](left);
      } catch (thrown) {
        failure = thrown instanceof PrivatemodeError ? thrown : malformed(thrown);
      }
    },
    async finish(): Promise<FormParts> {
      if (failure !== undefined) throw failure;
      if (state !== 'end') throw malformed();
      return { values: slicesOf(values), files: slicesOf(files) };
    },
  };
}

const slicesOf = (parts: ReadonlyMap<string, ByteChain>): Map<string, Uint8Array[]> =>
  new Map([...parts].map(([name, bytes]) => [name, bytes.slices(0, bytes.length)]));
