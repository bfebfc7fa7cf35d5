/** Finds and decodes the parts of a message in its text, `"id:nonce:iv:ciphertext+tag"`, the last two in hex. */
import { IV_BYTES, TAG_BYTES } from '../crypto/aead.ts';

const QUOTE = 0x22;
const COLON = 0x3a;

/** Where the parts of a message stand, in bytes; `size` of the ciphertext. */
interface Place {
  ivAt: number;
  bodyAt: number;
  tagAt: number;
  size: number;
}

/** Where the parts of the message located last stand: one for all, to be read before the next message is located. */
export const place: Place = { ivAt: 0, bodyAt: 0, tagAt: 0, size: 0 };

/** The position after the next colon, or `end` if there is none. */
function afterColon(source: Uint8Array, start: number, end: number): number {
  let position = start;
  while (position < end && source[position] !== COLON) position += 1;
  return Math.min(position + 1, end);
}

/** Finds the parts of the message between `from` and `to`; `size` is negative if they are not there. */
export function locate(source: Buffer, from: number, to: number): Place {
  let start = from;
  let end = to;
  while (start < end && source[start] === QUOTE) start += 1;
  while (end > start && source[end - 1] === QUOTE) end -= 1;
  place.ivAt = afterColon(source, afterColon(source, start, end), end);
  place.bodyAt = place.ivAt + 2 * IV_BYTES + 1;
  place.tagAt = end - 2 * TAG_BYTES;
  const size = (place.tagAt - place.bodyAt) / 2;
  place.size = Number.isInteger(size) && source[place.bodyAt - 1] === COLON ? size : -1;
  return place;
}

const INVALID = 0x100;
const VALUES = new Uint16Array(256).fill(INVALID);
for (const [value, digit] of [...'0123456789abcdef'].entries()) {
  VALUES[digit.charCodeAt(0)] = value;
  VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}
/** From here on the native decoder is faster, the string that it wants included. */
const NATIVE_BYTES = 256;

/**
 * Decodes `bytes` bytes from the hex digits, of either case, at `from` in `source` into `target` at `at`. False if one of them is
 * no hex digit; the target then holds some of them. Short messages go without a native call, which costs more than the work.
 */
function decodeHex(source: Buffer, from: number, target: Buffer, at: number, bytes: number): boolean {
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

/** Decodes the located message, its ciphertext to `bytes` from `at` on; false if it is none. */
export function decode(source: Buffer, iv: Buffer, tag: Buffer, bytes: Buffer, at: number): boolean {
  return (
    place.size >= 0 &&
    decodeHex(source, place.ivAt, iv, 0, IV_BYTES) &&
    decodeHex(source, place.tagAt, tag, 0, TAG_BYTES) &&
    decodeHex(source, place.bodyAt, bytes, at, place.size)
  );
}
