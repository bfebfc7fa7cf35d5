/** The characters of a JSON string, decoded one by one while its bytes arrive. */

/** The byte completes no character yet. */
export const NONE = -1;
/** Stands for a character beyond ASCII that was written as an escape. */
const OTHER = 0xff;
/**
 * Stands for a surrogate that is followed by another escape but forms no pair with it: some parsers read both
 * escapes as one character, others as two. Names and URLs of either reading contain no NUL.
 */
const AMBIGUOUS = 0x00;

const PLAIN = 0;
const ESCAPED = 1; // after a backslash
const CODE = 2; // within the digits of \uXXXX
const CODE_DIGITS = 4;

const ESCAPES: ReadonlyMap<number, number> = new Map([
  [0x62, 0x08],
  [0x66, 0x0c],
  [0x6e, 0x0a],
  [0x72, 0x0d],
  [0x74, 0x09],
]);

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff;
const isLowSurrogate = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff;

export interface JsonCharacters {
  /** A string begins. */
  reset(): void;
  /** Whether the bytes before the next backslash stand for themselves, and need not be fed. */
  plain(): boolean;
  /**
   * Takes the next byte of a valid string, as written, quotes excluded. Returns the ASCII code of the character that it
   * completes, NONE, or a byte of 0x80 and above for (part of) a character beyond ASCII.
   */
  feed(byte: number): number;
}

export function createJsonCharacters(): JsonCharacters {
  let state = PLAIN;
  let code = 0;
  let digits = 0;
  let surrogate = 0; // the escape just before was this surrogate, and no half of a pair so far

  const escaped = (): number => {
    const before = surrogate;
    surrogate = isHighSurrogate(code) || isLowSurrogate(code) ? code : 0;
    if (before === 0) return code < 0x80 ? code : OTHER;
    if (!isHighSurrogate(before) || !isLowSurrogate(code)) return AMBIGUOUS;
    surrogate = 0;
    return OTHER;
  };

  return {
    reset() {
      state = PLAIN;
      surrogate = 0;
    },
    plain: () => state === PLAIN && surrogate === 0,
    feed(byte) {
      if (state === CODE) {
        code = (code << 4) | (byte <= 0x39 ? byte & 0xf : (byte & 0xf) + 9);
        digits += 1;
        if (digits < CODE_DIGITS) return NONE;
        state = PLAIN;
        return escaped();
      }
      if (state === ESCAPED) {
        if (byte === 0x75) {
          state = CODE;
          code = 0;
          digits = 0;
          return NONE;
        }
        state = PLAIN;
        surrogate = 0;
        return ESCAPES.get(byte) ?? byte;
      }
      if (byte === 0x5c) {
        state = ESCAPED;
        return NONE;
      }
      surrogate = 0;
      return byte;
    },
  };
}
