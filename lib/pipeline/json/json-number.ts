/** The grammar of JSON numbers, byte by byte (RFC 8259 section 6), for a scan that may pause anywhere. */

/** Where in a number the scan is; `INVALID` is the end of it, or its failure. */
export const INVALID = -1;
const MINUS = 0;
const ZERO = 1;
const INTEGER = 2;
const POINT = 3;
const FRACTION = 4;
const EXPONENT = 5;
const EXPONENT_SIGN = 6;
const EXPONENT_DIGITS = 7;

const ENDABLE = (1 << ZERO) | (1 << INTEGER) | (1 << FRACTION) | (1 << EXPONENT_DIGITS);
const REPEATS_DIGITS = (1 << INTEGER) | (1 << FRACTION) | (1 << EXPONENT_DIGITS);

export const isDigit = (byte: number): boolean => byte >= 0x30 && byte <= 0x39;

/** The state after the first byte of a value, or INVALID where that begins no number. */
export function numberBegan(byte: number): number {
  if (byte === 0x2d) return MINUS;
  if (byte === 0x30) return ZERO;
  return isDigit(byte) ? INTEGER : INVALID;
}

/** Whether a number may end in that state. */
export const mayEnd = (state: number): boolean => (ENDABLE & (1 << state)) !== 0;

/** Whether any more digits leave that state as it is. */
export const repeatsDigits = (state: number): boolean => (REPEATS_DIGITS & (1 << state)) !== 0;

/** The state after `byte`, or INVALID where it is no part of the number. */
export function nextNumberState(state: number, byte: number): number {
  if (isDigit(byte)) {
    if (state === MINUS) return byte === 0x30 ? ZERO : INTEGER;
    if (state === ZERO) return INVALID;
    if (state === POINT) return FRACTION;
    if (state === EXPONENT || state === EXPONENT_SIGN) return EXPONENT_DIGITS;
    return state;
  }
  if (byte === 0x2e && (state === ZERO || state === INTEGER)) return POINT;
  if ((byte | 0x20) === 0x65 && (state === ZERO || state === INTEGER || state === FRACTION)) return EXPONENT;
  if ((byte === 0x2b || byte === 0x2d) && state === EXPONENT) return EXPONENT_SIGN;
  return INVALID;
}
