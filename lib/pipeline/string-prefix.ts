/** The first characters of a JSON string, decoded while its bytes arrive, in fixed memory. */

/** Enough to tell the names, types and schemes that are looked for; longer strings equal none of them. */
const KEPT = 10;
/** Stands for a character beyond ASCII that was written as an escape: equal to nothing that is looked for. */
const OTHER = 0xff;

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

const lower = (byte: number): number => (byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte);

export interface StringPrefix {
  /** Whether enough was seen; the rest of the string need not be fed. Never within an escape. */
  full(): boolean;
  /** A string begins. */
  reset(): void;
  /** Takes the next byte of a valid string, as written, quotes excluded. */
  feed(byte: number): void;
  /** Whether the string is that word (ASCII, shorter than 10 bytes). */
  equals(word: Uint8Array): boolean;
  /** Whether it begins with that word (ASCII in lower case, at most 10 bytes), in either case. */
  startsWith(word: Uint8Array): boolean;
}

export function createStringPrefix(): StringPrefix {
  const kept = new Uint8Array(KEPT);
  let count = 0;
  let state = PLAIN;
  let code = 0;
  let digits = 0;

  const keep = (byte: number): void => {
    if (count < KEPT) kept[count++] = byte;
    state = PLAIN;
  };

  const agrees = (word: Uint8Array, fold: (byte: number) => number): boolean => {
    if (count < word.length) return false;
    for (let i = 0; i < word.length; i++) if (fold(kept[i]!) !== word[i]) return false;
    return true;
  };

  return {
    full: () => count === KEPT && state === PLAIN,
    reset() {
      count = 0;
      state = PLAIN;
    },
    feed(byte) {
      if (state === PLAIN) {
        if (byte === 0x5c) state = ESCAPED;
        else keep(byte);
      } else if (state === ESCAPED) {
        if (byte === 0x75) {
          state = CODE;
          code = 0;
          digits = 0;
        } else keep(ESCAPES.get(byte) ?? byte);
      } else {
        code = (code << 4) | (byte <= 0x39 ? byte & 0xf : (byte & 0xf) + 9);
        digits += 1;
        if (digits === CODE_DIGITS) keep(code < 0x80 ? code : OTHER);
      }
    },
    equals: (word) => count === word.length && agrees(word, (byte) => byte),
    startsWith: (word) => agrees(word, lower),
  };
}
