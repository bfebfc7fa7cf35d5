/** Reads the values inside primitive DER elements. Every function throws evidence_malformed only. */
import { type Der, expectTag, malformed, TAG } from './der.ts';

/** BOOLEAN: DER allows 00 and FF only. */
export function readBoolean(element: Der): boolean {
  const { content } = expectTag(element, TAG.boolean);
  if (content.length !== 1 || (content[0] !== 0x00 && content[0] !== 0xff)) throw malformed('bad BOOLEAN');
  return content[0] === 0xff;
}

/** The bytes of a non-negative INTEGER (or ENUMERATED) without a leading zero byte; one byte 00 for zero. */
export function readUnsigned(element: Der, tag: number = TAG.integer): Uint8Array {
  const { content } = expectTag(element, tag);
  const [first = 0x80, second = 0x80] = content;
  if (first >= 0x80) throw malformed('empty or negative INTEGER');
  if (first === 0 && second < 0x80) throw malformed('INTEGER is not in its shortest form');
  return first === 0 && content.length > 1 ? content.subarray(1) : content;
}

/** A non-negative INTEGER (or ENUMERATED) of at most `max`; `max` is at most 2^32 - 1. */
export function readSmallInteger(element: Der, max: number, tag?: number): number {
  const bytes = readUnsigned(element, tag);
  const value = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  if (bytes.length > 4 || value > max) throw malformed(`INTEGER above ${max}`);
  return value;
}

/** What `readUnsigned` returns, as lower-case hex of whole bytes: the form of all serial numbers here. */
export const readSerial = (element: Der): string => Buffer.from(readUnsigned(element)).toString('hex');

/** OBJECT IDENTIFIER in dotted decimal form; no arc may have more than 53 bits. */
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

/** OCTET STRING, primitive as DER demands. */
export const readOctetString = (element: Der): Uint8Array => expectTag(element, TAG.octetString).content;

/** The bytes of a BIT STRING. At most `most` bits of the last byte do not count (DER demands zeros there). */
export function readBitString(element: Der, most: number): Uint8Array {
  const { content } = expectTag(element, TAG.bitString);
  const [unused = 8] = content;
  const bytes = content.subarray(1);
  // Without a last byte, no bit of it can be unused.
  const last = bytes.at(-1) ?? 0xff;
  if (unused > most || (last & ((1 << unused) - 1)) !== 0) throw malformed('bad BIT STRING');
  return bytes;
}

/** The kinds of text: the encoding, and the characters that it allows. TeletexString is read as Latin-1. */
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
  // What is not UTF-8 was replaced, and does not give the same bytes again.
  if (characters?.test(text) && Buffer.compare(Buffer.from(text, encoding), content) === 0) return text;
  throw malformed(`a string of tag 0x${tag.toString(16)} cannot be read`);
}

const TIME = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/;

/** UTCTime or GeneralizedTime in the one form RFC 5280 4.1.2.5 allows: seconds present, `Z`, no fraction. */
export function readTime({ tag, content }: Der): Date {
  if (tag !== TAG.utcTime && tag !== TAG.generalizedTime) throw malformed('a time is missing');
  const text = Buffer.from(content).toString('latin1');
  const century = tag === TAG.generalizedTime ? '' : text < '5' ? '20' : '19';
  const [, year, month, day, hour, minute, second] = TIME.exec(century + text) ?? [];
  const iso = `${year}-${month}-${day}T${hour}:${minute}:${second}.000Z`;
  const time = new Date(iso);
  // Date reads some days that do not exist, such as 30 February, as later ones.
  if (Number.isNaN(time.getTime()) || time.toISOString() !== iso)
    throw malformed('a time is not in the form of RFC 5280, or does not exist');
  return time;
}
