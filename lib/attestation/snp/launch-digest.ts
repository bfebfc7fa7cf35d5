/**
 * Computes two values that the report must contain after the launch that the manifest describes. One value is
 * the measurement, which includes one VMSA page for each further vCPU (docs/protocol/attestation.md 18,
 * 19.4). The second value is the digest of the ID key (5). Contrast signs every ID block with the constant
 * signature (r, s) = (2, 1), so the ID block determines the public key for which the signature is valid.
 */
import { p384 } from '@noble/curves/nist.js';
import { multiplyBaseP384, sha384 } from '#crypto';
import { hex } from '../check.ts';
import type { SnpReferenceValues } from '../manifest.ts';
import { littleEndian } from '../protobuf.ts';
import { PRODUCTS, type Product } from './packed-fields.ts';

/** The value of a segment register. Every segment limit is FFFFh, and only CS has a base other than 0. */
const segment = (selector: bigint, attributes: bigint): bigint =>
  selector | (attributes << 16n) | (0xffffn << 32n);

/** The offset and the value of each eight-byte field of the VMSA page that is the same for every guest. */
const REGISTERS: readonly (readonly [number, bigint])[] = [
  // ES, SS, DS, FS, GS
  ...[0x000, 0x020, 0x030, 0x040, 0x050].map((at) => [at, segment(0x0000n, 0x93n)] as const),
  [0x010, segment(0xf000n, 0x9bn)], // CS
  ...[0x060, 0x080].map((at) => [at, segment(0x0000n, 0x00n)] as const), // GDTR, IDTR
  [0x070, segment(0x0000n, 0x82n)], // LDTR
  [0x090, segment(0x0000n, 0x8bn)], // TR
  [0x0d0, 0x1000n], // EFER
  [0x148, 0x40n], // CR4
  [0x158, 0x10n], // CR0
  [0x160, 0x400n], // DR7
  [0x168, 0xffff0ff0n], // DR6
  [0x170, 0x2n], // RFLAGS
  [0x268, 0x0007040600070406n], // G_PAT
  [0x3b0, 0x1n], // SEV_FEATURES
  [0x3e8, 0x1n], // XCR0
  [0x408, 0x1f80n], // MXCSR
  [0x410, 0x037fn], // FCW
];

/** The VMSA page with the initial state of an application processor whose reset address is `apeip`. */
export function apVmsaPage(apeip: number, product: Product): Uint8Array {
  const page = new Uint8Array(4096);
  const view = new DataView(page.buffer);
  for (const [offset, value] of REGISTERS) view.setBigUint64(offset, value, true);
  view.setUint32(0x018, (apeip & 0xffff0000) >>> 0, true); // base of CS
  view.setUint32(0x178, apeip & 0xffff, true); // RIP
  view.setUint32(0x310, PRODUCTS[product].vcpuSignature, true); // RDX
  return page;
}

/** The end of PAGE_INFO after its two digests: length 112, page type VMSA, and the guest-physical address. */
const PAGE_INFO_TAIL = Uint8Array.from([0x70, 0, 2, 0, 0, 0, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0, 0]);

/** The measurements for 1 to 220 vCPUs. `seed` is for one vCPU, and each further vCPU adds one `page`. */
export function measurements(seed: Uint8Array, page: Uint8Array): readonly Uint8Array[] {
  const pageHash = sha384(page);
  const all = [seed];
  let digest = seed;
  while (all.length < 220) {
    digest = sha384(digest, pageHash, PAGE_INFO_TAIL);
    all.push(digest);
  }
  return all;
}

/** The accepted measurements: a single one without APEIP, but those for 1 to 220 vCPUs with APEIP. */
export const acceptedMeasurements = ({ trustedMeasurement, apeip, product }: SnpReferenceValues) =>
  apeip === undefined ? [trustedMeasurement] : measurements(trustedMeasurement, apVmsaPage(apeip, product));

/**
 * Recovers the public key Q = u1 G + u2 R for r = 2 and s = 1, so u1 = -z/2 and u2 = 1/2 (mod the order). R
 * is one of the two points with x = 2. HALF_R is half of one point, and -HALF_R is half of the other point.
 */
const HALF_R = p384.Point.fromAffine({
  x: 0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000fffffffen,
  y: 0x732152442fb6ee5c3e6ce1d920c059bc623563814d79042b903ce60f1d4487fccd450a86da03f3e6ed525d02017bfdb3n,
});
const ORDER = p384.Point.Fn.ORDER;
const HALF = (ORDER + 1n) / 2n;

/** Builds the 96-byte ID block for a launch measurement of 48 bytes. */
export function idBlock(measurement: Uint8Array, guestPolicy: bigint): Uint8Array {
  const block = new Uint8Array(96);
  const view = new DataView(block.buffer);
  block.set(measurement, 0x00);
  block[0x30] = 1; // family id
  block[0x40] = 2; // image id
  view.setUint32(0x50, 1, true); // version
  view.setUint32(0x54, 2, true); // guest SVN
  view.setBigUint64(0x58, guestPolicy, true);
  return block;
}

/**
 * Computes ID_KEY_DIGEST, the SHA-384 of the ID_KEY structure of a public key. The constant signature is
 * valid for two public keys, and the key with the smaller x is used. The computation takes about 1 ms.
 */
export function idKeyDigest(measurement: Uint8Array, guestPolicy: bigint): Uint8Array {
  const z = BigInt(`0x${hex(sha384(idBlock(measurement, guestPolicy)))}`);
  const u1G = p384.Point.fromBytes(multiplyBaseP384(((ORDER - (z % ORDER)) * HALF) % ORDER));
  const [a, b] = [u1G.add(HALF_R).toAffine(), u1G.subtract(HALF_R).toAffine()];
  const { x, y } = a.x < b.x ? a : b;
  const blob = new Uint8Array(0x404);
  blob[0] = 2; // the curve P-384
  blob.set(littleEndian(x, 72), 4);
  blob.set(littleEndian(y, 72), 4 + 72);
  return sha384(blob);
}
