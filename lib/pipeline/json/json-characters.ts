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

const BACKSLASH = 0x5c;
const LOWER_U = 0x75;

/** The control characters of the escapes with a letter; the others stand for themselves. */
const CONTROLS: ReadonlyMap<number, number> = new Map([
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
  let escaped = false; // after a backslash
  let digits = 0; // of \uXXXX, that must still come
  let code = 0;
  let surrogate = 0; // the escape just before was this surrogate, and no half of a pair so far

  /** The character of a complete \uXXXX. */
  const unicode = (): number => {
    const before = surrogate;
    surrogate = isHighSurrogate(code) || isLowSurrogate(code) ? code : 0;
    if (before === 0) return code < 0x80 ? code : OTHER;
    if (!isHighSurrogate(before) || !isLowSurrogate(code)) return AMBIGUOUS;
    surrogate = 0;
    return OTHER;
  };

  return {
    reset() {
      escaped = false;
      digits = 0;
      surrogate = 0;
    },
    plain: () => !escaped && digits === 0 && surrogate === 0,
    feed(byte) {
      if (digits > 0) {
        code = (code << 4) | (byte <= 0x39 ? byte & 0xf : (byte & 0xf) + 9);
        digits -= 1;
        return digits > 0 ? NONE : unicode();
      }
      if (!escaped && byte === BACKSLASH) {
        escaped = true;
        return NONE;
      }
      const character = escaped ? (CONTROLS.get(byte) ?? byte) : byte;
      if (escaped && byte === LOWER_U) {
        digits = 4;
        code = 0;
      } else surrogate = 0;
      escaped = false;
      return digits > 0 ? NONE : character;
    },
  };
}
