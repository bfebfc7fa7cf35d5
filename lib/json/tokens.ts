/**
 * The tokens of JSON text: strings, numbers and literals (RFC 8259). scan.ts puts them together. Each
 * function returns where its token, or a part of it, ends, and a position at or after the end of the text if
 * the token has no end there. It throws invalid_json at the first byte that the token cannot have.
 */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';

export type JsonKind = 'string' | 'number' | 'object' | 'array' | 'true' | 'false' | 'null';

/** What is wrong with a text. `position`: bytes from its start. The message quotes nothing of the text. */
export const refusal = (code: ErrorCode, message: string, position: number) =>
  Object.assign(new PrivatemodeError(code, message), { position });

export const invalidJson = (position: number, words = 'unexpected byte') =>
  refusal('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`, position);

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
/** The opening brackets. */
export const ARRAY = 0x5b;
export const OBJECT = 0x7b;
/** Added to the byte of an opening bracket, it gives the byte of the closing one. */
export const TO_CLOSER = 2;

const ZERO = 0x30;
const MINUS = 0x2d;
const POINT = 0x2e;
const SMALL_U = 0x75;

/** The kind of a value by its first byte. */
export const KINDS: (JsonKind | undefined)[] = Array(256).fill(undefined);
for (const byte of Buffer.from('-0123456789')) KINDS[byte] = 'number';
for (const literal of ['true', 'false', 'null'] as const) KINDS[literal.charCodeAt(0)] = literal;
KINDS[QUOTE] = 'string';
KINDS[OBJECT] = 'object';
KINDS[ARRAY] = 'array';

/** A table of all bytes: 1 for those of the text. */
function setOf(text: string): Uint8Array {
  const set = new Uint8Array(256);
  for (const byte of Buffer.from(text)) set[byte] = 1;
  return set;
}
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

/**
 * Marks the bytes of `word` that end a run, in their top bits; 0 if there is none. `^ 0x02` exchanges the
 * quote, 0x22, for the blank, 0x20. After it the quote and the bytes below 0x20 are below 0x21, so the
 * subtraction borrows into their top bit; the backslash is found in the same way. A borrow can also mark the
 * byte above.
 */
const stopsIn = (word: number): number =>
  (((word ^ 0x02020202) - 0x21212121) | ((word ^ 0x5c5c5c5c) - 0x01010101)) & ~word & 0x80808080;

/**
 * The position of the quote that ends the string, of which the text before `from` has been read. A position
 * at or after `until` if that comes first: it is not within an escape, and the caller goes on there. `view`
 * must be a view of `bytes`. Most bytes of a request are characters of long strings, so the loop looks at
 * eight bytes at a time.
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
