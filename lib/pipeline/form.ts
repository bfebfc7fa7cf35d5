// Reads and builds multipart forms (RFC 7578, RFC 2046 5.1). A runtime's own `formData()` is not used,
// because it changes bytes that are not UTF-8, undoes transfer encodings, and differs between runtimes.
import { randomBytes } from '../crypto/random.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Content, Value } from './encrypt-body.ts';

export type FormPart = ReturnType<typeof describe> & { readonly bytes: Buffer };

const MAX_PARTS = 100; // the heads of all parts are read in one turn, and each part costs a cipher context
const MAX_HEAD_BYTES = 16 * 1024; // the most bytes of a part's headers, or of blanks behind a boundary
const FORM = /^multipart\/(?:form-data|mixed)$/i;
// One parameter of a header value. A semicolon may follow the last parameter.
const PARAMETER =
  /[ \t]*;[ \t]*(?<name>[^\s;=]+)[ \t]*=[ \t]*(?:"(?<quoted>(?:[^"\\]|\\.)*)"|(?<bare>[^\s;"]*))(?:[ \t]*(?:;[ \t]*)?$)?/gsy;
// One header line: its name (RFC 9110 5.6.2), and a value without control characters except tabs.
const HEADER = /\r\n(?<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(?<bare>[^\0-\x08\x0a-\x1f\x7f]*)/gy;

const invalid = (message: string) => new PrivatemodeError('invalid_multipart', message);
const malformed = () => invalid('the form is malformed or cut off');

/** Maps the lower-case names in a text to their values. Throws for other text and for repeated names. */
function pairsIn(text: string, pattern: RegExp): ReadonlyMap<string, string> {
  const pairs = new Map<string, string>();
  let end = 0;
  for (const { 0: all, groups } of text.matchAll(pattern)) {
    const { name = '', quoted, bare = '' } = groups!;
    if (pairs.has(name.toLowerCase())) throw malformed();
    pairs.set(name.toLowerCase(), quoted?.replace(/\\(["\\])/g, '$1') ?? bare);
    end += all.length;
  }
  if (end < text.length) throw malformed();
  return pairs;
}

/** The parameters of a header value. The name `*` stands for the text before the first parameter. */
const parametersOf = (value: string) => pairsIn(`;*=${value}`, PARAMETER);

/** The boundary that the content type names (RFC 2046 5.1.1). Throws invalid_multipart without a boundary. */
export function boundaryOf(contentType = ''): string {
  const parameters = parametersOf(contentType);
  const boundary = parameters.get('boundary') ?? '';
  if (!FORM.test(parameters.get('*')!) || boundary === '' || boundary.length > 70) {
    throw invalid('the body must be multipart/form-data with a boundary');
  }
  return boundary;
}

/** Reads the header lines of a part. The part must be a field, because the service drops other parts. */
function describe(head: string) {
  const headers = pairsIn(head, HEADER);
  const parameters = parametersOf(headers.get('content-disposition') ?? '');
  if (parameters.get('*')!.toLowerCase() !== 'form-data') throw invalid('a part of the form is no field');
  const name = parameters.get('name');
  if (!name || parameters.has('name*')) throw invalid('a part of the form has no name');
  if (!/^(?:7bit|8bit|binary)[ \t]*$/i.test(headers.get('content-transfer-encoding') ?? 'binary')) {
    throw invalid('a part of the form has a transfer encoding');
  }
  // The file name and the content type of a part are not sent.
  return { name, isFile: Boolean(parameters.get('filename')) || parameters.has('filename*') };
}

function find(form: Buffer, bytes: string | Buffer, from: number, to: number): number {
  const at = form.subarray(from, to + bytes.length).indexOf(bytes, 0, 'latin1');
  if (at < 0) throw malformed();
  return from + at;
}

/** The parts of a form. Text behind the form is dropped. Throws invalid_multipart and repeated_form_field. */
export function readForm(form: Buffer, boundary: string): FormPart[] {
  const parts: FormPart[] = [];
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  const first = form.subarray(0, MAX_HEAD_BYTES + delimiter.length).indexOf(delimiter.subarray(2));
  // Only line ends may come before the first part: other bytes could be a part that lost its boundary.
  if (first < 0 || /[^\r\n]/.test(form.toString('latin1', 0, first))) {
    throw invalid('the form does not begin with its boundary');
  }
  let at = first + delimiter.length - 2;
  // The delimiter behind the last part is followed by `--`. Only blanks may follow any other delimiter.
  while (form.toString('latin1', at, at + 2) !== '--') {
    if (parts.length === MAX_PARTS) throw invalid('the form has too many parts');
    const line = find(form, '\r\n', at, at + MAX_HEAD_BYTES);
    if (form.toString('latin1', at, line).trim() !== '') throw malformed();
    const head = find(form, '\r\n\r\n', line, line + MAX_HEAD_BYTES);
    const { name, isFile } = describe(form.toString('utf8', line, head));
    if (parts.some((part) => part.name === name && part.isFile === isFile)) {
      throw new PrivatemodeError('repeated_form_field', 'a field of the form is repeated');
    }
    const end = find(form, delimiter, head + 4, form.length);
    parts.push({ name, isFile, bytes: form.subarray(head + 4, end) });
    at = end + delimiter.length;
  }
  return parts;
}

// Quotes a name. Line breaks are escaped, because a line break would begin another header.
const quoted = (name: string): string =>
  `"${name.replace(/["\\]/g, '\\$&').replace(/\r/g, '%0D').replace(/\n/g, '%0A')}"`;

/** Builds the form that is sent (docs/protocol/inference.md 6.3). No value can hold the random boundary. */
export function formContent(parts: readonly FormPart[], plain: ReadonlySet<string>): Content {
  const boundary = randomBytes(30).toString('hex');
  const sorted = parts.toSorted(
    (a, b) => Number(a.isFile) - Number(b.isFile) || Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)),
  );
  const values = sorted.map(({ name, isFile, bytes }, i): Value => {
    const file = isFile ? `; filename=${quoted(name)}\r\nContent-Type: application/octet-stream` : '';
    const head = `--${boundary}\r\nContent-Disposition: form-data; name=${quoted(name)}${file}\r\n\r\n`;
    const before = Buffer.from(i === 0 ? head : `\r\n${head}`);
    return { name: '', before, bytes, isPlain: !isFile && plain.has(name) };
  });
  const end = Buffer.from(`\r\n--${boundary}--\r\n`);
  return { values, end, salted: false, contentType: `multipart/form-data; boundary=${boundary}` };
}
