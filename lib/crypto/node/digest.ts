/** Hashes and constant-time comparison. Attestation uses node:crypto only through this directory. */
import { hash, timingSafeEqual } from 'node:crypto';

const digest = (algorithm: 'sha256' | 'sha384', parts: readonly Uint8Array[]): Uint8Array =>
  new Uint8Array(hash(algorithm, Buffer.concat(parts), 'buffer'));

/** SHA-256 (FIPS 180-4) over the concatenation of the parts: 32 bytes. */
export const sha256 = (...parts: Uint8Array[]): Uint8Array => digest('sha256', parts);

/** SHA-384 (FIPS 180-4) over the concatenation of the parts: 48 bytes. */
export const sha384 = (...parts: Uint8Array[]): Uint8Array => digest('sha384', parts);

/** Whether both hold the same bytes, in time that depends on their lengths only. */
export function constantTimeEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}

/**
 * SHA-256 as a string of 32 characters, one per byte. The shard key computes it once every few tokens of a
 * prompt.
 */
export const sha256Latin1 = (bytes: Uint8Array): string => hash('sha256', bytes, 'latin1');
