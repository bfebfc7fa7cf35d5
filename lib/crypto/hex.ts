/** Hex of short messages without a native call: for a message of a token, the call costs more than the work. */

const INVALID = 0x100;
const VALUES = new Uint16Array(256).fill(INVALID);
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  VALUES[digit.charCodeAt(0)] = value;
  VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}
/** From here on the native decoder is faster, the string that it wants included. */
const NATIVE_BYTES = 256;

/**
 * Decodes `bytes` bytes from the hex digits, of either case, at `from` in `source` into `target` at `at`. False
 * where one of them is no hex digit; the target then holds some of them.
 */
export function decodeHex(source: Buffer, from: number, target: Buffer, at: number, bytes: number): boolean {
  if (bytes >= NATIVE_BYTES) {
    return target.write(source.toString('latin1', from, from + 2 * bytes), at, bytes, 'hex') === bytes;
  }
  let seen = 0;
  for (let i = 0; i < bytes; i++) {
    const value = (VALUES[source[from + 2 * i]!]! << 4) | VALUES[source[from + 2 * i + 1]!]!;
    seen |= value;
    target[at + i] = value;
  }
  return seen <= 0xff;
}
