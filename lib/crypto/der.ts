/**
 * Reads DER (ITU-T X.690) strictly. Accepts only definite lengths in their shortest form, single-byte tags,
 * no trailing bytes and bounded depth. Results are views into the input, so nothing is copied. This file also
 * reads values of primitive elements, and certificates in PEM text (RFC 7468). Every function throws
 * PrivatemodeError('evidence_malformed') and no other error.
 */
import { PrivatemodeError } from '../errors.ts';

/** ASN.1 universal tags as identifier octets. SEQUENCE and SET include the bit for constructed encoding. */
export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  enumerated: 0x0a,
  utf8String: 0x0c,
  printableString: 0x13,
  teletexString: 0x14,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** The context-specific tag `n`, either constructed (used for EXPLICIT tagging) or primitive. */
export const contextTag = (n: number, constructed: boolean): number => (constructed ? 0xa0 : 0x80) | n;

export type Der = Readonly<ReturnType<typeof readElement>>;

const MAX_DEPTH = 24;

/** Makes the error evidence_malformed with the given message. */
export const malformed = (message: string): PrivatemodeError =>
  new PrivatemodeError('evidence_malformed', message);

/** Reads one DER element. `depth` is 0 for the outermost element. `full` includes the element's header. */
function readElement(bytes: Uint8Array, start: number, depth: number) {
  if (depth > MAX_DEPTH) throw malformed('DER is nested too deeply');
  const [tag, first] = bytes.subarray(start);
  if (tag === undefined || first === undefined) throw malformed('DER ends inside an element header');
  if ((tag & 0x1f) === 0x1f) throw malformed('DER uses a multi-byte tag');
  const isLong = first >= 0x80;
  const contentStart = start + 2 + (isLong ? first & 0x7f : 0);
  if (contentStart > bytes.length) throw malformed('DER ends inside a length');
  const digits = bytes.subarray(start + 2, contentStart);
  const length = isLong ? digits.reduce((sum, byte) => sum * 256 + byte, 0) : first;
  // An indefinite length has no digits, so it counts as 0. The long form may not state the length 0.
  if (isLong && length < Math.max(0x80, 256 ** (digits.length - 1)))
    throw malformed('DER uses a length that is indefinite, or not in its shortest form');
  const end = contentStart + length;
  if (end > bytes.length) throw malformed('DER ends inside an element');
  return { tag, full: bytes.subarray(start, end), content: bytes.subarray(contentStart, end), depth };
}

/** Reads the DER element that fills all the bytes. Refuses trailing bytes. */
export function parseDer(bytes: Uint8Array, tag?: number): Der {
  const element = readElement(bytes, 0, 0);
  if (element.full.length !== bytes.length) throw malformed('bytes follow the DER element');
  return expectTag(element, tag);
}

/** Returns the element. Throws if the element is missing, or if its tag differs from a given `tag`. */
export function expectTag(element: Der | undefined, tag = element?.tag): Der {
  if (element === undefined) throw malformed('a DER element is missing');
  if (element.tag === tag) return element;
  throw malformed(`DER tag 0x${element.tag.toString(16)} where 0x${tag?.toString(16)} belongs`);
}

/** Reads the elements inside a constructed element, in their order. */
export function children({ tag, content, depth }: Der): Der[] {
  if ((tag & 0x20) === 0) throw malformed('a primitive DER element was opened');
  const found: Der[] = [];
  for (let offset = 0; offset < content.length; ) {
    const element = readElement(content, offset, depth + 1);
    found.push(element);
    offset += element.full.length;
  }
  return found;
}

/** Reads the only element inside an EXPLICIT wrapper. */
export function onlyChild(element: Der): Der {
  const [child, ...rest] = children(element);
  if (child === undefined || rest.length > 0) throw malformed('not exactly one DER element');
  return child;
}

/** Reads a SEQUENCE with the function `read`, which must take all elements of the SEQUENCE. */
export function readSequence<T>(element: Der, read: (cursor: DerCursor) => T): T {
  const cursor = new DerCursor(element);
  const value = read(cursor);
  cursor.end();
  return value;
}

/** Reads the elements of a SEQUENCE one after the other. Elements may be optional. */
export class DerCursor {
  readonly #elements: Der[];

  constructor(sequence: Der) {
    this.#elements = children(expectTag(sequence, TAG.sequence));
  }

  /** Takes the next element. If `tag` is given, the next element must have this tag. */
  take(tag?: number): Der {
    return expectTag(this.#elements.shift(), tag);
  }

  /** Reads the next element with `read` if its tag is `tag`; otherwise returns undefined. */
  optional<T>(tag: number, read: (element: Der) => T): T | undefined {
    return this.#elements[0]?.tag === tag ? read(this.take()) : undefined;
  }

  /** Takes all remaining elements. If `tag` is given, every remaining element must have this tag. */
  rest(tag?: number): Der[] {
    return this.#elements.splice(0).map((element) => expectTag(element, tag));
  }

  /** Throws if the caller has not taken all elements. */
  end(): void {
    if (this.#elements.length > 0) throw malformed('unexpected DER elements follow');
  }
}

/** Reads a BOOLEAN. DER allows the bytes 00 and FF only. */
export function readBoolean(element: Der): boolean {
  const { content } = expectTag(element, TAG.boolean);
  if (content.length !== 1 || (content[0] !== 0x00 && content[0] !== 0xff)) throw malformed('bad BOOLEAN');
  return content[0] === 0xff;
}

/** The bytes of a non-negative INTEGER (or ENUMERATED) without a leading zero byte. Zero is one byte 00. */
export function readUnsigned(element: Der, tag: number = TAG.integer): Uint8Array {
  const { content } = expectTag(element, tag);
  const [first = 0x80, second = 0x80] = content;
  if (first >= 0x80) throw malformed('empty or negative INTEGER');
  if (first === 0 && second < 0x80) throw malformed('INTEGER is not in its shortest form');
  return first === 0 && content.length > 1 ? content.subarray(1) : content;
}

/** Reads an INTEGER or ENUMERATED from 0 to `max`, where `max` is at most 2^32 - 1. */
export function readSmallInteger(element: Der, max: number, tag?: number): number {
  const bytes = readUnsigned(element, tag);
  const value = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  if (bytes.length > 4 || value > max) throw malformed(`INTEGER above ${max}`);
  return value;
}

/** Reads an INTEGER as lower-case hex of whole bytes. All serial numbers in this program have this form. */
export const readSerial = (element: Der): string => Buffer.from(readUnsigned(element)).toString('hex');

/** Reads an OBJECT IDENTIFIER as dotted decimal numbers. Refuses an arc of more than 53 bits. */
export function readOid(element: Der): string {
  const { content } = expectTag(element, TAG.oid);
  const arcs: number[] = [];
  let arc = 0;
  for (const byte of content) {
    if (arc === 0 && byte === 0x80) throw malformed('OBJECT IDENTIFIER is not in its shortest form');
    arc = arc * 128 + (byte & 0x7f);
    if (arc > Number.MAX_SAFE_INTEGER) throw malformed('OBJECT IDENTIFIER with an oversized arc');
    if (byte >= 0x80) continue;
    arcs.push(arc);
    arc = 0;
  }
  const [first, ...rest] = arcs;
  if (first === undefined || arc !== 0) throw malformed('truncated OBJECT IDENTIFIER');
  const root = first < 80 ? Math.floor(first / 40) : 2;
  return [root, first - root * 40, ...rest].join('.');
}

/** The bytes of an OCTET STRING, which DER requires to be primitive. */
export const readOctetString = (element: Der): Uint8Array => expectTag(element, TAG.octetString).content;

/** The bytes of a BIT STRING. At most `most` bits of the last byte may be unused. Unused bits must be 0. */
export function readBitString(element: Der, most: number): Uint8Array {
  const { content } = expectTag(element, TAG.bitString);
  const [unused = 8] = content;
  const bytes = content.subarray(1);
  // A BIT STRING without data bytes cannot have unused bits.
  const last = bytes.at(-1) ?? 0xff;
  if (unused > most || (last & ((1 << unused) - 1)) !== 0) throw malformed('bad BIT STRING');
  return bytes;
}

/** The encoding and the allowed characters of each string type. A TeletexString is read as Latin-1. */
const TEXTS: Readonly<Record<number, readonly [BufferEncoding, RegExp]>> = {
  [TAG.utf8String]: ['utf8', /^/],
  [TAG.printableString]: ['latin1', /^[A-Za-z0-9 '()+,\-./:=?*&@]*$/],
  [TAG.ia5String]: ['latin1', /^[\x00-\x7f]*$/],
  [TAG.teletexString]: ['latin1', /^/],
};

/** The text of a UTF8String, PrintableString, IA5String or TeletexString. */
export function readText({ tag, content }: Der): string {
  const [encoding, characters] = TEXTS[tag] ?? [];
  const text = Buffer.from(content).toString(encoding);
  // Decoding replaces invalid UTF-8, so encoding the decoded text again gives other bytes.
  if (characters?.test(text) && Buffer.compare(Buffer.from(text, encoding), content) === 0) return text;
  throw malformed(`a string of tag 0x${tag.toString(16)} cannot be read`);
}

const TIME = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/;

/** Reads a UTCTime or GeneralizedTime. RFC 5280 4.1.2.5 demands seconds, `Z`, and no fraction. */
export function readTime({ tag, content }: Der): Date {
  if (tag !== TAG.utcTime && tag !== TAG.generalizedTime) throw malformed('a time is missing');
  const text = Buffer.from(content).toString('latin1');
  const century = tag === TAG.generalizedTime ? '' : text < '5' ? '20' : '19';
  const [, year, month, day, hour, minute, second] = TIME.exec(century + text) ?? [];
  const iso = `${year}-${month}-${day}T${hour}:${minute}:${second}.000Z`;
  const time = new Date(iso);
  // The Date constructor turns some nonexistent days, such as 30 February, into later days.
  if (Number.isNaN(time.getTime()) || time.toISOString() !== iso)
    throw malformed('a time is not in the form of RFC 5280, or does not exist');
  return time;
}

const BLOCK = /-----BEGIN CERTIFICATE-----\r?\n([A-Za-z0-9+/=\r\n]*?)\r?\n?-----END CERTIFICATE-----/g;

/**
 * Decodes at least one CERTIFICATE block of a PEM text. Only white space may stand between the blocks and
 * around the blocks. The base64 of each block must be canonical.
 */
export function decodeCertificates(text: string): Uint8Array[] {
  const blocks = [...text.matchAll(BLOCK)];
  if (blocks.length === 0 || text.replace(BLOCK, '').trim() !== '')
    throw malformed('not PEM blocks of certificates and nothing else');
  return blocks.map(([, body = '']) => {
    const base64 = body.replace(/[\r\n]/g, '');
    const der = new Uint8Array(Buffer.from(base64, 'base64'));
    if (der.length === 0 || Buffer.from(der).toString('base64') !== base64)
      throw malformed('a PEM block is not base64');
    return der;
  });
}

/** Returns the DER of the only CERTIFICATE block in a PEM text of at most 100,000 characters. */
export function decodeOneCertificate(text: string): Uint8Array {
  // A PEM text of 100,000 characters can hold the largest certificate that parseCertificate reads.
  if (text.length > 100_000) throw malformed('a certificate in PEM is too large');
  const [der, ...rest] = decodeCertificates(text);
  if (der === undefined || rest.length > 0) throw malformed('not exactly one CERTIFICATE block');
  return der;
}
