/** What JSON text is made of below its values: UTF-8, the characters of strings, the digits of numbers (RFC 8259). */
import { isUtf8 } from 'node:buffer';
import { PrivatemodeError } from '../../errors.ts';

/** `position` in bytes from the first of the body; nothing of the body is quoted. */
export const invalidJson = (position: number, words = 'unexpected byte'): PrivatemodeError =>
  new PrivatemodeError('invalid_json', `the body is not valid JSON: ${words} at offset ${position}`);

const EMPTY = new Uint8Array(0);

/** Bytes of the UTF-8 sequence that this lead byte begins; 4 for bytes that begin none, which then fail. */
const sequenceLength = (lead: number): number => (lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2);

/** Bytes at the end that begin a sequence without completing it: at most three. */
function unfinished(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back]!;
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return sequenceLength(byte) > back ? back : 0;
  }
  return 0;
}

/**
 * Validates UTF-8 (RFC 3629) that arrives in chunks; sequences may cross them. The function returned takes the next chunk and
 * returns false once the bytes so far cannot be UTF-8. It misses a sequence that is cut off at the very end: the last byte of a
 * JSON text is ASCII.
 */
export function createUtf8Check(): (chunk: Uint8Array) => boolean {
  let carry: Uint8Array = EMPTY;
  return (chunk) => {
    const missing = carry.length === 0 ? 0 : sequenceLength(carry[0]!) - carry.length;
    const first = missing === 0 ? carry : Buffer.concat([carry, chunk.subarray(0, missing)]);
    if (chunk.length < missing) {
      carry = first;
      return true;
    }
    const end = chunk.length - unfinished(chunk.subarray(missing));
    carry = chunk.subarray(end);
    return isUtf8(first) && isUtf8(chunk.subarray(missing, end));
  };
}

export const isHexDigit = (byte: number): boolean =>
  (byte >= 0x30 && byte <= 0x39) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);

/** 1 for what may follow a backslash, `u` aside. */
export const SIMPLE_ESCAPES = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) SIMPLE_ESCAPES[byte] = 1;

// 1 for the bytes that end a run of plain characters: quote, backslash, control characters.
const STOPS = new Uint8Array(256).fill(1, 0, 0x20);
for (const byte of Buffer.from('"\\')) STOPS[byte] = 1;

const BACKSLASH = 0x5c;
const TOP_BITS = 0x80808080;

/**
 * The top bits of the bytes in `word` that stop a run. A byte below 0x20 and a quote are both below 0x21 once the bit in
 * which quote and blank differ is turned over, and so borrow into their top bit. A borrow can reach the byte above as well,
 * never the one below: the lowest bit is right.
 */
const stopsIn = (word: number): number =>
  (((word ^ 0x02020202) - 0x21212121) | ((word ^ 0x5c5c5c5c) - 0x01010101)) & ~word & TOP_BITS;

/** Which byte has the lowest of these bits. */
const lowest = (stops: number): number => (31 - Math.clz32(stops & -stops)) >> 3;

const isSimpleEscape = (chunk: Uint8Array, at: number): boolean =>
  chunk[at] === BACKSLASH && at + 1 < chunk.length && SIMPLE_ESCAPES[chunk[at + 1]!] === 1;

/**
 * Position of the first byte at or after `from` that is no part of a string as it stands: a quote, a control character, or a
 * backslash that begins no simple escape (or ends the chunk); the chunk's length where there is none. Most bytes of a request are
 * characters of long strings, so eight of `view`, which is of the chunk, are looked at at a time: 3 to 4 GB/s on prose, against 1
 * to 1.5 byte by byte.
 */
export function stringRunEnd(chunk: Uint8Array, view: DataView, from: number): number {
  const size = chunk.length;
  const last = size - 8;
  let i = from;
  while (i <= last) {
    const low = stopsIn(view.getInt32(i, true));
    const high = stopsIn(view.getInt32(i + 4, true));
    if ((low | high) === 0) {
      i += 8;
      continue;
    }
    i += low !== 0 ? lowest(low) : 4 + lowest(high);
    if (!isSimpleEscape(chunk, i)) return i;
    i += 2;
  }
  while (i < size) {
    if (STOPS[chunk[i]!] === 0) i += 1;
    else if (isSimpleEscape(chunk, i)) i += 2;
    else break;
  }
  return i;
}

// Where in a number the scan is (RFC 8259 section 6).
const MINUS = 1;
const ZERO = 2;
const INTEGER = 3;
const POINT = 4;
const FRACTION = 5;
const EXPONENT = 6;
const SIGN = 7;
const DIGITS = 8; // of the exponent

/** Before the first byte of a number. */
export const NUMBER_START = 0;
/** The byte is no part of the number. */
export const INVALID = -1;

/** The next state by state and class of byte, which are the columns of `0`, `1` to `9`, `.`, `e`, `+` and `-`; 0 for INVALID. */
const NEXT_STATES: readonly (readonly number[])[] = [
  [ZERO, INTEGER, 0, 0, 0, MINUS], // NUMBER_START
  [ZERO, INTEGER, 0, 0, 0, 0], // MINUS
  [0, 0, POINT, EXPONENT, 0, 0], // ZERO
  [INTEGER, INTEGER, POINT, EXPONENT, 0, 0], // INTEGER
  [FRACTION, FRACTION, 0, 0, 0, 0], // POINT
  [FRACTION, FRACTION, 0, EXPONENT, 0, 0], // FRACTION
  [DIGITS, DIGITS, 0, 0, SIGN, SIGN], // EXPONENT
  [DIGITS, DIGITS, 0, 0, 0, 0], // SIGN
  [DIGITS, DIGITS, 0, 0, 0, 0], // DIGITS
];
const NO_CLASS = 6;
const CLASSES = new Uint8Array(256).fill(NO_CLASS);
for (const [column, bytes] of ['0', '123456789', '.', 'eE', '+', '-'].entries()) {
  for (const byte of Buffer.from(bytes)) CLASSES[byte] = column;
}

/** The state after `byte`, or INVALID. */
export const nextNumberState = (state: number, byte: number): number =>
  NEXT_STATES[state]![CLASSES[byte]!] || INVALID;

/** Whether a number may end in that state. */
export const mayEnd = (state: number): boolean =>
  state === ZERO || state === INTEGER || state === FRACTION || state === DIGITS;
