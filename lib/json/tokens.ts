/**
 * The tokens of JSON text (RFC 8259), which scan.ts puts together. Each function returns where its token, or
 * a part of it, ends; a position at or after the end of the text if the token has no end there. It throws
 * invalid_json at the first byte that the token cannot have.
 */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';

/** What is wrong with a text. `position`: bytes from its start. The message quotes nothing of the text. */
export const refusal = (code: ErrorCode, message: string, position: number) =>
  Object.assign(new PrivatemodeError(code, message), { position });

export const invalidJson = (position: number, words = 'unexpected byte') =>
  refusal('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`, position);

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
const [MINUS, ZERO, POINT, SMALL_U] = Buffer.from('-0.u');

/** By which bytes the values of each kind begin. */
const FIRST = {
  string: '"',
  number: '-0123456789',
  object: '{',
  array: '[',
  true: 't',
  false: 'f',
  null: 'n',
};
export type JsonKind = keyof typeof FIRST;
/** The kind of a value by its first byte. */
export const KINDS: (JsonKind | undefined)[] = Array(256).fill(undefined);
for (const [kind, first] of Object.entries(FIRST)) {
  for (const byte of Buffer.from(first)) KINDS[byte] = kind as JsonKind;
}

/** A table of all bytes: 1 for those of the text. */
const setOf = (text: string): Uint8Array =>
  Uint8Array.from({ length: 256 }, (_, byte) => Number(text.includes(String.fromCharCode(byte))));
const DIGITS = setOf('0123456789');
const EXPONENT = setOf('eE');
const SIGN = setOf('+-');
const HEX = setOf('0123456789abcdefABCDEF');
const ESCAPED = setOf('"\\/bfnrtu');
/** The bytes that end a run of plain characters: quote, backslash, control characters. */
const STOPS = setOf('"\\').fill(1, 0, 0x20);

/** `word`: the literal that begins at `from`. */
export function literalEnd(bytes: Uint8Array, from: number, word: string): number {
  const end = from + word.length;
  for (let i = from; i < end && i < bytes.length; i++) {
    if (bytes[i] !== word.charCodeAt(i - from)) throw invalidJson(i);
  }
  return end;
}

/** One digit or more. */
function digitsEnd(bytes: Uint8Array, from: number): number {
  let i = from;
  while (DIGITS[bytes[i]!] === 1) i += 1;
  if (i === from && i < bytes.length) throw invalidJson(i);
  return i;
}

/** A number. One that a double may not hold as it is written adds its start and its end to `inexact`. */
export function numberEnd(bytes: Uint8Array, from: number, inexact: number[] | undefined): number {
  const first = bytes[from] === MINUS ? from + 1 : from;
  const whole = bytes[first] === ZERO ? first + 1 : digitsEnd(bytes, first);
  const decimal = bytes[whole] === POINT ? digitsEnd(bytes, whole + 1) : whole;
  let end = decimal;
  if (EXPONENT[bytes[end]!] === 1) end = digitsEnd(bytes, end + (SIGN[bytes[end + 1]!] === 1 ? 2 : 1));
  if (end > decimal || end - from > 15) inexact?.push(from, end);
  return end;
}

/** The escape whose backslash is at `from`. */
function escapeEnd(bytes: Uint8Array, from: number): number {
  const end = bytes[from + 1] === SMALL_U ? from + 6 : from + 2;
  for (let i = from + 1; i < end && i < bytes.length; i++) {
    if ((i === from + 1 ? ESCAPED : HEX)[bytes[i]!] === 0) throw invalidJson(i, 'unknown escape');
  }
  return end;
}

// Marks the bytes of `word` that end a run, in their top bits; 0 if there is none. `^ 0x02` brings the quote,
// 0x22, to the bytes below 0x21, so that the subtraction borrows into their top bits. The backslash is found
// in the same way. A borrow can also mark the byte above.
const stopsIn = (word: number): number =>
  (((word ^ 0x02020202) - 0x21212121) | ((word ^ 0x5c5c5c5c) - 0x01010101)) & ~word & 0x80808080;

/**
 * The quote that ends the string which has been read up to `from`. A position at or after `until` if that
 * comes first: it is not within an escape, and the caller goes on there. `view` must be one of `bytes`. Most
 * bytes of a request are characters of long strings: the loop takes eight at a time.
 */
export function quoteAt(bytes: Uint8Array, view: DataView, from: number, until: number): number {
  let i = from;
  while (i < until) {
    while (i + 8 <= until && (stopsIn(view.getInt32(i, true)) | stopsIn(view.getInt32(i + 4, true))) === 0) {
      i += 8;
    }
    while (i < until && STOPS[bytes[i]!] === 0) i += 1;
    if (i >= until || bytes[i] === QUOTE) return i;
    if (bytes[i] !== BACKSLASH) throw invalidJson(i, 'control character in a string');
    i = escapeEnd(bytes, i);
  }
  return i;
}
