/** Products of the base point of P-384 where node:crypto is absent: the twin of ../node/p384.ts. */
import { p384 } from '@noble/curves/nist.js';

/** The base point without noble's table, which takes 40 ms to make and pays off only after many products. */
const P384_BASE = p384.Point.fromAffine(p384.Point.BASE.toAffine());

/**
 * `scalar` times the base point of P-384 as 0x04 || x || y (SEC 1 2.3.3), 97 bytes; for public data only.
 * Throws unless 0 < scalar < order.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  return P384_BASE.multiplyUnsafe(scalar).toBytes(false);
}
