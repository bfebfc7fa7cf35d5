/**
 * Public keys and signature verification: ECDSA on P-256 and P-384, and RSASSA-PSS as AMD signs. A signature
 * that cannot be parsed does not verify: the functions resolve with false for it. They are asynchronous
 * because those of Web Crypto are.
 */
import {
  constants,
  createECDH,
  createPublicKey,
  type KeyObject,
  type VerifyKeyObjectInput,
  verify,
} from 'node:crypto';
import { PrivatemodeError } from '../../errors.ts';

export type EcCurve = 'P-256' | 'P-384';
export type EcdsaHash = 'sha256' | 'sha384';

/** A key of a certificate, with the facts that decide which signatures it may verify. */
export type PublicKey = Readonly<ReturnType<typeof readKey>>;

/** Length of one coordinate, and of r and s, in bytes. */
const COORDINATE_BYTES: Readonly<Record<EcCurve, number>> = { 'P-256': 32, 'P-384': 48 };
const CURVES: Readonly<Record<string, EcCurve>> = { prime256v1: 'P-256', secp384r1: 'P-384' };
const curveOf = (key: KeyObject): EcCurve | undefined => CURVES[key.asymmetricKeyDetails?.namedCurve ?? ''];
const ALGORITHMS: Readonly<Record<string, 'ec' | 'rsa'>> = { ec: 'ec', rsa: 'rsa', 'rsa-pss': 'rsa' };
const algorithmOf = (key: KeyObject) => ALGORITHMS[key.asymmetricKeyType ?? ''] ?? 'other';

/**
 * Reads a SubjectPublicKeyInfo (DER, RFC 5280 4.1.2.7). Points that are not on their curve are refused.
 * Throws evidence_malformed.
 */
export const publicKeyFromSpki = (spki: Uint8Array): PublicKey => readKey(spki, 'spki');

/** Reads an RSAPublicKey (DER, RFC 8017 A.1.1). Throws evidence_malformed. */
export const publicKeyFromPkcs1 = (der: Uint8Array): PublicKey => readKey(der, 'pkcs1');

/** Where the point begins in the SPKI of a key on a named curve (RFC 5480 2). */
const POINT_AT: Readonly<Record<EcCurve, number>> = { 'P-256': 26, 'P-384': 23 };

/**
 * Whether the key has a named curve and an uncompressed point, as Go demands. OpenSSL also reads explicit
 * parameters, compressed and hybrid points.
 */
const isPlainPoint = (spki: Uint8Array, curve: EcCurve): boolean =>
  spki[POINT_AT[curve]] === 4 && spki.length === POINT_AT[curve] + 1 + 2 * COORDINATE_BYTES[curve];

function readKey(der: Uint8Array, type: 'spki' | 'pkcs1') {
  const refusal = 'a public key cannot be read';
  const key = createKey({ key: Buffer.from(der), format: 'der', type }, refusal);
  // OpenSSL also reads BER, and ignores bytes after the key.
  const isDer = key.export({ type, format: 'der' }).equals(der);
  const on = curveOf(key);
  if (!isDer || (on !== undefined && !isPlainPoint(der, on)))
    throw new PrivatemodeError('evidence_malformed', refusal);
  const { modulusLength = 0, publicExponent = 0n } = key.asymmetricKeyDetails ?? {};
  const algorithm = algorithmOf(key);
  const rsa = algorithm === 'rsa' ? { modulusBits: modulusLength, exponent: publicExponent } : undefined;
  /** `curve` is undefined for an `ec` key on a curve other than P-256 and P-384. */
  return { key, algorithm, curve: curveOf(key), rsa };
}

function createKey(input: Parameters<typeof createPublicKey>[0], refusal: string): KeyObject {
  try {
    return createPublicKey(input);
  } catch (cause) {
    throw new PrivatemodeError('evidence_malformed', refusal, { cause });
  }
}

/**
 * A key from the raw affine coordinates x || y, big-endian, 32 or 48 bytes each.
 * Throws evidence_malformed for a wrong length or a point that is not on the curve.
 */
export function publicKeyFromPoint(curve: EcCurve, point: Uint8Array): KeyObject {
  const size = COORDINATE_BYTES[curve];
  if (point.length !== 2 * size) {
    throw new PrivatemodeError('evidence_malformed', `a ${curve} point has ${point.length} bytes`);
  }
  const half = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url');
  const key = { kty: 'EC', crv: curve, x: half(point.subarray(0, size)), y: half(point.subarray(size)) };
  return createKey({ key, format: 'jwk' }, `a point is not on ${curve}`);
}

/** The raw coordinates x || y of an EC key on P-256 or P-384. Throws evidence_malformed for other keys. */
export function pointOf(key: KeyObject): Uint8Array {
  const jwk = key.asymmetricKeyType === 'ec' ? key.export({ format: 'jwk' }) : {};
  if (jwk.crv !== 'P-256' && jwk.crv !== 'P-384') {
    throw new PrivatemodeError('evidence_malformed', 'a public key is not on P-256 or P-384');
  }
  return new Uint8Array(Buffer.concat([jwk.x, jwk.y].map((half = '') => Buffer.from(half, 'base64url'))));
}

/**
 * Verifies an ECDSA signature (FIPS 186-5) over the hash of `data`. `encoding` is `der` for the ASN.1
 * SEQUENCE of r and s, `raw` for r || s, big-endian, both exactly as long as the curve's order. False for
 * anything else.
 */
export async function verifyEcdsa(input: {
  readonly key: KeyObject;
  readonly hash: EcdsaHash;
  readonly encoding: 'raw' | 'der';
  readonly data: Uint8Array;
  readonly signature: Uint8Array;
}): Promise<boolean> {
  const { key, hash, encoding, data, signature } = input;
  const curve = curveOf(key);
  if (curve === undefined) return false;
  if (encoding === 'raw' && signature.length !== 2 * COORDINATE_BYTES[curve]) return false;
  return isValid(hash, data, { key, dsaEncoding: encoding === 'raw' ? 'ieee-p1363' : 'der' }, signature);
}

function isValid(hash: EcdsaHash, data: Uint8Array, key: VerifyKeyObjectInput, signature: Uint8Array) {
  try {
    return verify(hash, data, key, signature);
  } catch {
    return false;
  }
}

/**
 * Verifies RSASSA-PSS with SHA-384, MGF1-SHA-384 and a salt of exactly 48 bytes (RFC 8017 8.1;
 * docs/protocol/attestation.md 7). False for any other key type or salt length.
 */
export async function verifyRsaPssSha384(
  key: KeyObject,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  if (algorithmOf(key) !== 'rsa') return false;
  // Step 1 of RFC 8017 8.1.2. OpenSSL leaves it out: it accepts a signature without its leading zeros.
  if (8 * signature.length !== key.asymmetricKeyDetails?.modulusLength) return false;
  const pss = { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 48 };
  return isValid('sha384', data, pss, signature);
}

/**
 * `scalar` times the base point of P-384 as 0x04 || x || y (SEC 1 2.3.3), 97 bytes; for public data only
 * (FIPS 186-5, SP 800-186 3.2.1.4). OpenSSL takes 1 ms; the first product in JavaScript takes 12 ms. Throws
 * unless 0 < scalar < order.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  const ecdh = createECDH('secp384r1');
  ecdh.setPrivateKey(scalar.toString(16).padStart(96, '0'), 'hex');
  return ecdh.getPublicKey();
}
