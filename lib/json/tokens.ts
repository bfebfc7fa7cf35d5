/**
 * Reads the tokens of JSON text (RFC 8259) for scan.ts. Each function reads a token, or a part of one, and
 * returns the position behind it. If the text ends within the token, the function returns the end of the text
 * or a position behind it. Each function throws invalid_json at the first byte that the token cannot have.
 */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';

/** An error at a `position`, in bytes from the start of the text. The message quotes nothing of the text. */
export const refusal = (code: ErrorCode, message: string, position: number) =>
  Object.assign(new PrivatemodeError(code, message), { position });

export const invalidJson = (position: number, words = 'unexpected byte') =>
  refusal('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`, position);

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
const [MINUS, ZERO, POINT, SMALL_U] = Buffer.from('-0.u');

/** The bytes with which the values of each kind begin. */
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
/** The kind of a value, by the first byte of the value. */
export const KINDS: (JsonKind | undefined)[] = Array(256).fill(undefined);
for (const [kind, first] of Object.entries(FIRST)) {
  for (const byte of Buffer.from(first)) KINDS[byte] = kind as JsonKind;
}

/** A table with an entry for each byte: 1 if the text contains the byte. */
const setOf = (text: string): Uint8Array =>
  Uint8Array.from({ length: 256 }, (_, byte) => Number(text.includes(String.fromCharCode(byte))));
const DIGITS = setOf('0123456789');
const EXPONENT = setOf('eE');
const SIGN = setOf('+-');
const HEX = setOf('0123456789abcdefABCDEF');
const ESCAPED = setOf('"\\/bfnrtu');
/** The bytes that end a run of plain characters: quote, backslash, control characters. */
const STOPS = setOf('"\\').fill(1, 0, 0x20);

export function literalEnd(bytes: Uint8Array, from: number, word: string): number {
  const end = from + word.length;
  for (let i = from; i < end && i < bytes.length; i++) {
    if (bytes[i] !== word.charCodeAt(i - from)) throw invalidJson(i);
  }
  return end;
}

function digitsEnd(bytes: Uint8Array, from: number): number {
  let i = from;
  while (DIGITS[bytes[i]!] === 1) i += 1;
  if (i === from && i < bytes.length) throw invalidJson(i);
  return i;
}

/** Reads a number, and adds its start and end to `inexact` if a double may not hold the number as written. */
export function numberEnd(bytes: Uint8Array, from: number, inexact: number[] | undefined): number {
  const first = bytes[from] === MINUS ? from + 1 : from;
  const whole = bytes[first] === ZERO ? first + 1 : digitsEnd(bytes, first);
  const decimal = bytes[whole] === POINT ? digitsEnd(bytes, whole + 1) : whole;
  let end = decimal;
  if (EXPONENT[bytes[end]!] === 1) end = digitsEnd(bytes, end + (SIGN[bytes[end + 1]!] === 1 ? 2 : 1));
  if (end > decimal || end - from > 15) inexact?.push(from, end);
  return end;
}

function escapeEnd(bytes: Uint8Array, from: number): number {
  const end = bytes[from + 1] === SMALL_U ? from + 6 : from + 2;
  for (let i = from + 1; i < end && i < bytes.length; i++) {
    if ((i === from + 1 ? ESCAPED : HEX)[bytes[i]!] === 0) throw invalidJson(i, 'unknown escape');
  }
  return end;
}

// Sets the top bit of each byte of `word` that ends a run of plain characters; 0 if no byte does. `^ 0x02`
// turns the quote (0x22) into a byte below 0x21, like a control character, so that the subtraction borrows
// into its top bit. The backslash is found in the same way. A borrow can mark the next byte by mistake.
const stopsIn = (word: number): number =>
  (((word ^ 0x02020202) - 0x21212121) | ((word ^ 0x5c5c5c5c) - 0x01010101)) & ~word & 0x80808080;

/**
 * Returns the position of the quote that ends a string, searching from `from`. If `until` comes first,
 * returns where the caller goes on: a position at or after `until`, but not within an escape. `view` must be
 * a view of `bytes`. The loop takes eight bytes at a time: most bytes of a request are in long strings.
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
