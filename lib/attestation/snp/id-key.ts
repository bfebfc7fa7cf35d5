/**
 * The ID key digest that a guest launched by Contrast must show (docs/protocol/attestation.md 5). Contrast signs the ID block with
 * the constant signature (r, s) = (2, 1); the key under which that signature is valid follows from the block, so the
 * digest is a function of measurement and guest policy.
 */
import { p384 } from '@noble/curves/nist.js';
import { sha384 } from '../../crypto/digest.ts';
import { multiplyBaseP384 } from '../../crypto/p384.ts';
import { malformed } from '../x509/der.ts';
import { littleEndian } from './report.ts';

/**
 * Key recovery is Q = u1 G + u2 R with r = 2, s = 1, so u1 = -z/2 and u2 = 1/2 (mod the order). R is one of the two
 * points with x = 2; half of it is this constant (and its negative for the other), whose x is -1.
 */
const HALF_R = p384.Point.fromAffine({
  x: 0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000fffffffen,
  y: 0x732152442fb6ee5c3e6ce1d920c059bc623563814d79042b903ce60f1d4487fccd450a86da03f3e6ed525d02017bfdb3n,
});
const ORDER = p384.Point.Fn.ORDER;
const HALF = (ORDER + 1n) / 2n;

const ID_BLOCK_BYTES = 96;
const ID_KEY_BYTES = 0x404;
const CURVE_P384 = 2;
/** Coordinates stand in 72 bytes, little-endian. */
const COORDINATE_BYTES = 72;

/** The 96-byte ID block. `measurement` has 48 bytes; throws evidence_malformed otherwise. */
export function idBlock(measurement: Uint8Array, guestPolicy: bigint): Uint8Array {
  if (measurement.length !== 48) throw malformed('a launch measurement must have 48 bytes');
  const block = new Uint8Array(ID_BLOCK_BYTES);
  const view = new DataView(block.buffer);
  block.set(measurement, 0x00);
  block[0x30] = 1; // family id
  block[0x40] = 2; // image id
  view.setUint32(0x50, 1, true); // version
  view.setUint32(0x54, 2, true); // guest SVN
  view.setBigUint64(0x58, guestPolicy, true);
  return block;
}

/** The public key that Contrast's constant signature belongs to: of the two, the one that sorts first. */
export function idKey(
  measurement: Uint8Array,
  guestPolicy: bigint,
): { readonly x: bigint; readonly y: bigint } {
  const z = BigInt(`0x${Buffer.from(sha384(idBlock(measurement, guestPolicy))).toString('hex')}`);
  const u1G = p384.Point.fromBytes(multiplyBaseP384(((ORDER - (z % ORDER)) * HALF) % ORDER));
  const a = u1G.add(HALF_R).toAffine();
  const b = u1G.subtract(HALF_R).toAffine();
  return a.x < b.x || (a.x === b.x && a.y < b.y) ? a : b;
}

/**
 * ID_KEY_DIGEST, 48 bytes: SHA-384 over the ID_KEY blob of that key. `guestPolicy` is the u64 of the ID block
 * (docs/protocol/attestation.md 6.3). About 1 ms. Throws evidence_malformed for a measurement that has not 48 bytes.
 */
export function idKeyDigest(measurement: Uint8Array, guestPolicy: bigint): Uint8Array {
  const { x, y } = idKey(measurement, guestPolicy);
  const blob = new Uint8Array(ID_KEY_BYTES);
  new DataView(blob.buffer).setUint32(0, CURVE_P384, true);
  blob.set(littleEndian(x, COORDINATE_BYTES), 4);
  blob.set(littleEndian(y, COORDINATE_BYTES), 4 + COORDINATE_BYTES);
  return sha384(blob);
}
