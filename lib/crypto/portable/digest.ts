/**
 * Hashes and constant-time comparison where node:crypto is absent: the twin of ../node/digest.ts, by
 * @noble/hashes.
 */
import { sha256 as nobleSha256, sha384 as nobleSha384 } from '@noble/hashes/sha2.js';
import { concatBytes } from '@noble/hashes/utils.js';

/** SHA-256 (FIPS 180-4) over the concatenation of the parts: 32 bytes. */
export function sha256(...parts: Uint8Array[]): Uint8Array {
  return nobleSha256(concatBytes(...parts));
}

/** SHA-384 (FIPS 180-4) over the concatenation of the parts: 48 bytes. */
export function sha384(...parts: Uint8Array[]): Uint8Array {
  return nobleSha384(concatBytes(...parts));
}

/** Whether both hold the same bytes, in time that depends on their lengths only. */
export function constantTimeEqual(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let i = 0; i < a.length; i++) difference |= a[i]! ^ b[i]!;
  return difference === 0;
}

/** SHA-256 as a string of 32 characters, one per byte. */
export const sha256Latin1 = (bytes: Uint8Array): string => Buffer.from(nobleSha256(bytes)).toString('latin1');
