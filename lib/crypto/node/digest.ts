/**
 * Hashes and constant-time comparison. This room is the one seam between the attestation code and node:crypto:
 * a browser build swaps these few functions and nothing else.
 */
import { createHash, hash, timingSafeEqual } from 'node:crypto';

function digest(algorithm: 'sha256' | 'sha384', parts: readonly Uint8Array[]): Uint8Array {
  const hash = createHash(algorithm);
  for (const part of parts) hash.update(part);
  return new Uint8Array(hash.digest());
}

/** SHA-256 (FIPS 180-4) over the concatenation of the parts: 32 bytes. */
export const sha256 = (...parts: Uint8Array[]): Uint8Array => digest('sha256', parts);

/** SHA-384 (FIPS 180-4) over the concatenation of the parts: 48 bytes. */
export const sha384 = (...parts: Uint8Array[]): Uint8Array => digest('sha384', parts);

/** Whether both hold the same bytes, in time that depends on their lengths only. */
export function constantTimeEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

/** SHA-256 as a string of 32 characters, one a byte: for a prompt it is computed once in every few tokens. */
export const sha256Latin1 = (bytes: Uint8Array): string => hash('sha256', bytes, 'latin1');
