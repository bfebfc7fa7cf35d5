/**
 * Takes a complete multipart form apart (RFC 7578, RFC 2046 5.1), and builds the form that leaves. Parts are
 * views of its bytes: nothing is decoded. A runtime's own `formData()` would change bytes that are not UTF-8,
 * undo transfer encodings, and differ from that of the next runtime.
 */
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Content, Value } from './encrypt-body.ts';

export interface FormParts {
  /** Value fields by name, as raw bytes. */
  readonly values: ReadonlyMap<string, Buffer>;
  /**
   * Files by name of their field; file name and content type do not reach the service
   * (docs/protocol/inference.md 6.3).
   */
  readonly files: ReadonlyMap<string, Buffer>;
}

/** Most characters of a boundary (RFC 2046 5.1.1). */
const MAX_BOUNDARY = 70;
/** Of the boundary that we draw. */
const BOUNDARY_BYTES = 30;
/** Most fields and files of a form: each costs a cipher context when it is sealed. */
const MAX_PARTS = 1000;
/** Bytes of the header lines of one part, and of the blanks behind a boundary. */
const MAX_HEAD_BYTES = 16 * 1024;

const FORM = /^multipart\/(?:form-data|mixed)\s*(?=;)/i;
const DISPOSITION = /^form-data[ \t]*(?=;|$)/i;
/** One parameter: its name, and its value quoted or not. */
const PARAMETER = /[ \t]*;[ \t]*([^\s;=]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/gsy;
const IDENTITY_ENCODING = /^(?:7bit|8bit|binary)$/i;
/** RFC 9110 5.6.2: the name of a header. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9a-z-]+$/i;
/** Control characters in a header line, where a tab is allowed. */
const CONTROL = /[\0-\x08\x0a-\x1f\x7f]/;

const invalid = (message: string) => new PrivatemodeError('invalid_multipart', message);
const malformed = () => invalid('the form is malformed or cut off');

/** Puts a pair into the map. Throws invalid_multipart if the name, in any letter case, is there already. */
function addOnce(pairs: Map<string, string>, name: string, value: string): void {
  if (pairs.has(name.toLowerCase())) throw malformed();
  pairs.set(name.toLowerCase(), value);
}

/** The parameters after the first `;`, by lower-case name. Throws invalid_multipart. */
function parametersOf(text: string): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  let end = 0;
  for (const [all, name = '', quoted, bare = ''] of text.matchAll(PARAMETER)) {
    addOnce(found, name, quoted?.replace(/\\(["\\])/g, '$1') ?? bare);
    end += all.length;
  }
  if (!/^[ \t]*;?[ \t]*$/.test(text.slice(end))) throw malformed();
  return found;
}

/** The boundary that the content type names. Throws invalid_multipart if it is not a form with one. */
export function boundaryOf(contentType = ''): string {
  const [type] = FORM.exec(contentType) ?? [];
  if (type === undefined) throw invalid('the body must be multipart/form-data with a boundary');
  const boundary = parametersOf(contentType.slice(type.length)).get('boundary');
  if (!boundary || boundary.length > MAX_BOUNDARY) {
    throw invalid(`the form must have a boundary of 1 to ${MAX_BOUNDARY} characters`);
  }
  return boundary;
}

/**
 * The name of a part, and whether it is a file. `head`: its header lines, which may be neither folded nor
 * repeated. It must say that it is a field, because the service would drop any other part, and give its name
 * as `name`, not as `name*`. Throws invalid_multipart.
 */
function describe(head: string): { readonly name: string; readonly isFile: boolean } {
  const headers = new Map<string, string>();
  for (const line of head.split('\r\n').slice(1)) {
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(colon, 0));
    if (!TOKEN.test(name) || CONTROL.test(line)) throw malformed();
    addOnce(headers, name, line.slice(colon + 1).trim());
  }
  const disposition = headers.get('content-disposition') ?? '';
  const [type] = DISPOSITION.exec(disposition) ?? [];
  if (type === undefined) throw invalid('a part of the form is no field');
  const parameters = parametersOf(disposition.slice(type.length));
  const name = parameters.get('name');
  if (!name || parameters.has('name*')) throw invalid('a part of the form has no name');
  if (!IDENTITY_ENCODING.test(headers.get('content-transfer-encoding') ?? 'binary')) {
    throw invalid('a part of the form has a transfer encoding');
  }
  return { name, isFile: Boolean(parameters.get('filename')) || parameters.has('filename*') };
}

/** The position of `bytes` in the form, at or after `from`. Throws invalid_multipart if it is beyond `to`. */
function find(form: Buffer, bytes: string | Buffer, from: number, to: number): number {
  const at = form.indexOf(bytes, from, 'latin1');
  if (at < 0 || at > to) throw malformed();
  return at;
}

/**
 * Takes a form with that boundary apart. Throws invalid_multipart, also if the form is cut off or has more
 * than 1,000 parts, and repeated_form_field. What stands behind its last boundary does not count.
 */
export function readForm(form: Buffer, boundary: string): FormParts {
  const values = new Map<string, Buffer>();
  const files = new Map<string, Buffer>();
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  const first = form.indexOf(delimiter.subarray(2));
  if (first < 0) throw malformed();
  // Only line ends may come before the first part: other bytes could be a part that lost its boundary.
  if (first > MAX_HEAD_BYTES || !form.subarray(0, first).every((byte) => byte === 0x0d || byte === 0x0a)) {
    throw invalid('there is text before the first part of the form');
  }
  let at = first + delimiter.length - 2;
  // Behind a delimiter stands `--` after the last part, else blanks.
  while (form.toString('latin1', at, at + 2) !== '--') {
    if (values.size + files.size === MAX_PARTS) throw invalid('the form has too many parts');
    const line = find(form, '\r\n', at, at + MAX_HEAD_BYTES);
    if (form.toString('latin1', at, line).trim() !== '') throw malformed();
    const head = find(form, '\r\n\r\n', line, line + MAX_HEAD_BYTES);
    const { name, isFile } = describe(form.toString('utf8', line, head));
    const known = isFile ? files : values;
    if (known.has(name)) throw new PrivatemodeError('repeated_form_field', 'a field of the form is repeated');
    const end = find(form, delimiter, head + 4, form.length);
    known.set(name, form.subarray(head + 4, end));
    at = end + delimiter.length;
  }
  return { values, files };
}

/** Quotes the name for a header parameter, where a line break would begin another header. */
const quoted = (name: string): string =>
  `"${name.replace(/["\\]/g, '\\$&').replace(/\r/g, '%0D').replace(/\n/g, '%0A')}"`;

const byName = (parts: ReadonlyMap<string, Buffer>) =>
  [...parts].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));

/**
 * The form that leaves (docs/protocol/inference.md 6.3). Each part is sealed on its own, except for fields in
 * `plain`. Value fields come first, by the bytes of their names, then files likewise; sequence numbers are in
 * that order. Its boundary is random: no value can hold it.
 */
export function formContent({ values, files }: FormParts, plain: ReadonlySet<string>): Content {
  const boundary = randomBytes(BOUNDARY_BYTES).toString('hex');
  const parts: Value[] = [];
  const add = (name: string, headers: string, bytes: Buffer, isPlain: boolean): void => {
    const lineEnd = parts.length === 0 ? '' : '\r\n';
    const before = `${lineEnd}--${boundary}\r\nContent-Disposition: form-data; name=${quoted(name)}${headers}`;
    parts.push({ name, before: Buffer.from(`${before}\r\n\r\n`), bytes, isPlain });
  };
  for (const [name, bytes] of byName(values)) add(name, '', bytes, plain.has(name));
  for (const [name, bytes] of byName(files)) {
    add(name, `; filename=${quoted(name)}\r\nContent-Type: application/octet-stream`, bytes, false);
  }
  const end = Buffer.from(`\r\n--${boundary}--\r\n`);
  const contentType = `multipart/form-data; boundary=${boundary}`;
  return { values: parts, end, byName: false, salted: false, contentType };
}
