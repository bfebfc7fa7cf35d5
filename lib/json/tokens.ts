/**
 * The tokens of JSON text, byte by byte: strings, numbers and literals (RFC 8259). scan.ts puts them
 * together.
 */

export type JsonKind = 'string' | 'number' | 'object' | 'array' | 'true' | 'false' | 'null';

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
/** The opening brackets. */
export const ARRAY = 0x5b;
export const OBJECT = 0x7b;
/** Added to the byte of an opening bracket, it gives the byte of the closing one. */
export const TO_CLOSER = 2;

/** The kind of a value by its first byte. */
export const KINDS: (JsonKind | undefined)[] = Array(256).fill(undefined);
for (const byte of Buffer.from('-0123456789')) KINDS[byte] = 'number';
for (const literal of ['true', 'false', 'null'] as const) KINDS[literal.charCodeAt(0)] = literal;
KINDS[QUOTE] = 'string';
KINDS[OBJECT] = 'object';
KINDS[ARRAY] = 'array';

// Where a scan stands inside a token. A state of a number is named by what came last.
export const STRING = 9;
export const ESCAPE = 10; // after a backslash
const HEX_1 = 11; // the digits of \uXXXX
const HEX_2 = 12;
const HEX_3 = 13;
const HEX_4 = 14;
/** Before the first byte of a number or a literal. */
export const SCALAR = 15;
const MINUS = 16;
const POINT = 17;
const EXPONENT = 18;
const SIGN = 19;
const LETTERS = 20; // to 29: after each of the letters `tru`, `fals` and `nul`
/** In this state and those above it, the number or the literal may end. */
export const COMPLETE = 30;
const ZERO = 30;
const INTEGER = 31;
const FRACTION = 32;
/** In the digits of an exponent. */
export const POWER = 33;
const LITERAL = 34;

const NONZERO = '123456789';
const DIGITS = `0${NONZERO}`;
const HEX_DIGITS = `${DIGITS}abcdefABCDEF`;

const NEXT = new Uint8Array((LITERAL + 1) << 8);
for (const [states, bytes, next] of [
  [[ESCAPE], '"\\/bfnrt', STRING],
  [[ESCAPE], 'u', HEX_1],
  [[HEX_1], HEX_DIGITS, HEX_2],
  [[HEX_2], HEX_DIGITS, HEX_3],
  [[HEX_3], HEX_DIGITS, HEX_4],
  [[HEX_4], HEX_DIGITS, STRING],
  [[SCALAR], '-', MINUS],
  [[SCALAR, MINUS], '0', ZERO],
  [[SCALAR, MINUS, INTEGER], NONZERO, INTEGER],
  [[INTEGER], '0', INTEGER],
  [[ZERO, INTEGER], '.', POINT],
  [[POINT, FRACTION], DIGITS, FRACTION],
  [[ZERO, INTEGER, FRACTION], 'eE', EXPONENT],
  [[EXPONENT], '+-', SIGN],
  [[EXPONENT, SIGN, POWER], DIGITS, POWER],
] as const) {
  for (const state of states) for (const byte of Buffer.from(bytes)) NEXT[(state << 8) | byte] = next;
}
let letters = LETTERS;
for (const literal of ['true', 'false', 'null']) {
  const bytes = Buffer.from(literal);
  for (let i = 0; i < bytes.length; i++) {
    const state = i === 0 ? SCALAR : letters++;
    NEXT[(state << 8) | bytes[i]!] = i === bytes.length - 1 ? LITERAL : letters;
  }
}

/**
 * The state after `byte`, inside an escape, a number or a literal; 0 if the byte is not part of it.
 */
export const nextState = (state: number, byte: number): number => NEXT[(state << 8) | byte]!;

// 1 for the bytes that end a run of plain characters: quote, backslash, control characters.
const STOPS = new Uint8Array(256).fill(1, 0, 0x20);
STOPS[QUOTE] = 1;
STOPS[BACKSLASH] = 1;

/**
 * Marks the bytes of `word` that end a run, in their top bits; 0 if there is none. `^ 0x02` exchanges the
 * quote, 0x22, for the blank, 0x20. After it the quote and the bytes below 0x20 are below 0x21, so the
 * subtraction borrows into their top bit; the backslash is found in the same way. A borrow can also mark the
 * byte above.
 */
const stopsIn = (word: number): number =>
  (((word ^ 0x02020202) - 0x21212121) | ((word ^ 0x5c5c5c5c) - 0x01010101)) & ~word & 0x80808080;

/** Which byte of a word, 0 to 3, has the lowest of these marks. */
const lowest = (stops: number): number => (31 - Math.clz32(stops & -stops)) >> 3;

/**
 * Position of the first byte at or after `from` where a string is more than characters and escapes of two
 * bytes; `end` if there is none before it. It is the quote that ends the string, an escape of another length,
 * or a byte that no string may have. `view` must be a view of `bytes`.
 *
 * Most bytes of a request are characters of long strings, so the loop looks at eight bytes at a time.
 */
export function easyEnd(bytes: Uint8Array, view: DataView, from: number, end: number): number {
  let i = from;
  for (;;) {
    while (i + 8 <= end) {
      const low = stopsIn(view.getInt32(i, true));
      const high = stopsIn(view.getInt32(i + 4, true));
      if ((low | high) !== 0) {
        i += low !== 0 ? lowest(low) : 4 + lowest(high);
        break;
      }
      i += 8;
    }
    while (i < end && STOPS[bytes[i]!] === 0) i += 1;
    if (i + 1 >= end || bytes[i] !== BACKSLASH || nextState(ESCAPE, bytes[i + 1]!) !== STRING) return i;
    i += 2;
  }
}
