/**
 * The little P-384 arithmetic that no API offers (FIPS 186-5, SP 800-186 3.2.1.4): a multiple of the base point,
 * computed by node:crypto, and the sum of two points. On public data only: the addition is not constant-time.
 */
import { createECDH } from 'node:crypto';

export const P384_FIELD = 2n ** 384n - 2n ** 128n - 2n ** 96n + 2n ** 32n - 1n;
export const P384_ORDER =
  0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n;
const BYTES = 48;

/** Affine coordinates; never the point at infinity. */
export interface AffinePoint {
  readonly x: bigint;
  readonly y: bigint;
}

/** The integer that big-endian bytes stand for. */
export function integerOf(bytes: Uint8Array): bigint {
  return bytes.length === 0 ? 0n : BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
}

/** `scalar` times the base point, for 0 < scalar < order; throws RangeError otherwise. */
export function multiplyBase(scalar: bigint): AffinePoint {
  if (scalar <= 0n || scalar >= P384_ORDER) throw new RangeError('scalar out of range');
  const ecdh = createECDH('secp384r1');
  ecdh.setPrivateKey(scalar.toString(16).padStart(2 * BYTES, '0'), 'hex');
  const point = ecdh.getPublicKey();
  return {
    x: integerOf(point.subarray(1, 1 + BYTES)),
    y: integerOf(point.subarray(1 + BYTES)),
  };
}

const modulo = (value: bigint, modulus: bigint): bigint => ((value % modulus) + modulus) % modulus;

/** The inverse modulo a prime, by the extended Euclidean algorithm. */
function invert(value: bigint, modulus: bigint): bigint {
  let [r0, r1] = [modulus, modulo(value, modulus)];
  let [t0, t1] = [0n, 1n];
  while (r1 !== 0n) {
    const quotient = r0 / r1;
    [r0, r1] = [r1, r0 - quotient * r1];
    [t0, t1] = [t1, t0 - quotient * t1];
  }
  return modulo(t0, modulus);
}

/** The sum of two points with different x coordinates; throws RangeError for equal ones. */
export function addPoints(a: AffinePoint, b: AffinePoint): AffinePoint {
  if (a.x === b.x) throw new RangeError('points share their x coordinate');
  const slope = modulo((b.y - a.y) * invert(b.x - a.x, P384_FIELD), P384_FIELD);
  const x = modulo(slope * slope - a.x - b.x, P384_FIELD);
  return { x, y: modulo(slope * (a.x - x) - a.y, P384_FIELD) };
}

/** The point with the opposite y coordinate. */
export function negatePoint({ x, y }: AffinePoint): AffinePoint {
  return { x, y: modulo(-y, P384_FIELD) };
}
