/** The one product of P-384 that the verifier needs, where node:crypto is absent: the twin of ../p384.ts, by @noble/curves. */
import { p384 } from '@noble/curves/nist.js';

/** A base point without the table that noble makes for its own, which takes 40 ms and pays after many products only. */
const BASE = p384.Point.fromAffine(p384.Point.BASE.toAffine());

/** `scalar` times the base point as 0x04 || x || y (SEC 1 2.3.3), 97 bytes. Throws for a scalar outside 0 < scalar < order. */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  return BASE.multiplyUnsafe(scalar).toBytes(false);
}
