/**
 * Public keys and signature verification where node:crypto is absent: the twin of ../node/signature.ts. Web
 * Crypto verifies; if it lacks a pairing of curve and hash, @noble/curves verifies. @noble/curves also
 * decides whether a point is on its curve.
 */
import { p256, p384 } from '@noble/curves/nist.js';
import { PrivatemodeError } from '../../errors.ts';
import { children, type Der, type DerCursor, parseDer, readSequence, TAG } from '../der.ts';
import { sha256, sha384 } from './digest.ts';

export type EcCurve = 'P-256' | 'P-384';
export type EcdsaHash = 'sha256' | 'sha384';

/** What verifies a signature; undefined for a key that verifies none here. */
export type VerificationKey =
  | { readonly curve: EcCurve /** 0x04 || x || y. */; readonly point: Uint8Array }
  | { readonly spki: Uint8Array }
  | undefined;

/** A key of a certificate, with the facts that decide which signatures it may verify. */
export interface PublicKey {
  readonly key: VerificationKey;
  readonly algorithm: 'ec' | 'rsa' | 'other';
  /** Only for `ec`; undefined for a curve other than these two. */
  readonly curve: EcCurve | undefined;
  /** Only for `rsa`. */
  readonly rsa: { readonly modulusBits: number; readonly exponent: bigint } | undefined;
}

const ENGINES = { 'P-256': p256, 'P-384': p384 } as const;
const HASHES = {
  sha256: { name: 'SHA-256', of: sha256 },
  sha384: { name: 'SHA-384', of: sha384 },
} as const;
const COORDINATE_BYTES: Readonly<Record<EcCurve, number>> = { 'P-256': 32, 'P-384': 48 };

/** Object identifiers, DER without tag and length, in hex. */
const OID_EC = '2a8648ce3d0201';
const OID_RSA = ['2a864886f70d010101', '2a864886f70d01010a'];
const CURVE_OF_OID: Readonly<Record<string, EcCurve>> = {
  '2a8648ce3d030107': 'P-256',
  '2b81040022': 'P-384',
};
/**
 * Curves of keys that can be read but verify nothing here: y^2 = x^3 + ax + b modulo p (SEC 2 2.4.1 and
 * 2.6.1).
 */
const OTHER_CURVES: Readonly<Record<string, { bytes: number; p: bigint; a: bigint; b: bigint }>> = {
  // secp256k1
  '2b8104000a': { bytes: 32, p: 2n ** 256n - 2n ** 32n - 977n, a: 0n, b: 7n },
  // P-521
  '2b81040023': {
    bytes: 66,
    p: 2n ** 521n - 1n,
    a: -3n,
    b: 0x0051953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00n,
  },
};
/**
 * Bytes of the keys of X25519, X448, Ed25519 and Ed448 (RFC 8410), which can be read but verify nothing here.
 */
const OTHER_KEY_BYTES: Readonly<Record<string, number>> = {
  '2b656e': 32,
  '2b656f': 56,
  '2b6570': 32,
  '2b6571': 57,
};
const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const malformed = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('evidence_malformed', message, cause === undefined ? {} : { cause });
const unreadable = (cause?: unknown): PrivatemodeError => malformed('a public key cannot be read', cause);

/**
 * Parses the bytes as one SEQUENCE and returns what `read` makes of it; `read` must take all of its elements.
 * Throws evidence_malformed.
 */
function sequenceOf<T>(der: Uint8Array, read: (fields: DerCursor) => T): T {
  try {
    return readSequence(parseDer(der), read);
  } catch (cause) {
    throw unreadable(cause);
  }
}

/** The value of an INTEGER's content: at least 1, and without padding (X.690 8.3). */
function positive(integer: Uint8Array): bigint {
  const [first = 0x80, second = 0] = integer;
  const padded = first === 0 && second < 0x80;
  if (first >= 0x80 || padded) throw unreadable();
  return BigInt(`0x${toHex(integer)}`);
}

/**
 * Reads a SubjectPublicKeyInfo (DER, RFC 5280 4.1.2.7). Refuses points that are not on their curve. Refuses
 * every key that OpenSSL refuses, and a few that OpenSSL reads: keys in BER, hybrid points, algorithms and
 * curves beyond the tables above. Throws evidence_malformed.
 */
export function publicKeyFromSpki(spki: Uint8Array): PublicKey {
  const { algorithm, bits } = sequenceOf(spki, (fields) => ({
    algorithm: children(fields.take(TAG.sequence)),
    bits: fields.take(TAG.bitString).content,
  }));
  const [oid, parameters, ...rest] = algorithm;
  if (oid?.tag !== TAG.oid || rest.length > 0 || bits[0] !== 0) throw unreadable();
  const name = toHex(oid.content);
  const material = bits.subarray(1);
  if (OID_RSA.includes(name)) return rsaKey(spki, name === OID_RSA[0], parameters, material);
  if (name === OID_EC) return ecKey(parameters, material);
  if (material.length !== OTHER_KEY_BYTES[name] || parameters !== undefined) throw unreadable();
  return { key: undefined, algorithm: 'other', curve: undefined, rsa: undefined };
}

/**
 * Reads an RSA key (RFC 8017 A.1 and A.2.3). Web Crypto takes no key that is bound to PSS, so such a key
 * verifies nothing here.
 */
function rsaKey(spki: Uint8Array, isPlain: boolean, parameters: Der | undefined, der: Uint8Array): PublicKey {
  const isNull = parameters?.tag === TAG.null && parameters.content.length === 0;
  if (isPlain && !isNull) throw unreadable();
  if (!isPlain && parameters !== undefined && parameters.tag !== TAG.sequence) throw unreadable();
  const key = isPlain ? { spki: Uint8Array.from(spki) } : undefined;
  return { key, algorithm: 'rsa', curve: undefined, rsa: rsaOf(der) };
}

/** Reads an EC key (RFC 5480 2.1.1): a named curve, and an uncompressed point on it. */
function ecKey(parameters: Der | undefined, material: Uint8Array): PublicKey {
  const name = parameters?.tag === TAG.oid ? toHex(parameters.content) : '';
  const curve = CURVE_OF_OID[name];
  if (material[0] !== 4 || (curve === undefined && !isOnOtherCurve(name, material))) throw unreadable();
  const key = curve && { curve, point: onCurve(curve, material, 'a public key cannot be read') };
  return { key, algorithm: 'ec', curve, rsa: undefined };
}

/** Whether the bytes are an uncompressed point on the curve `name` of `OTHER_CURVES`. */
function isOnOtherCurve(name: string, point: Uint8Array): boolean {
  const curve = OTHER_CURVES[name];
  if (curve === undefined || point.length !== 1 + 2 * curve.bytes || point[0] !== 4) return false;
  const { bytes, p, a, b } = curve;
  const [x, y] = [point.subarray(1, 1 + bytes), point.subarray(1 + bytes)].map((half) =>
    BigInt(`0x${toHex(half)}`),
  ) as [bigint, bigint];
  return x < p && y < p && (y * y - x * x * x - a * x - b) % p === 0n;
}

/** Reads an RSAPublicKey (DER, RFC 8017 A.1.1). Throws evidence_malformed. */
export function publicKeyFromPkcs1(der: Uint8Array): PublicKey {
  return { key: undefined, algorithm: 'rsa', curve: undefined, rsa: rsaOf(der) };
}

function rsaOf(der: Uint8Array): NonNullable<PublicKey['rsa']> {
  const [modulus, exponent] = sequenceOf(der, (fields) => [
    fields.take(TAG.integer),
    fields.take(TAG.integer),
  ]).map(({ content }) => positive(content));
  return { modulusBits: modulus!.toString(2).length, exponent: exponent! };
}

/** Returns the point uncompressed. Throws evidence_malformed if it is not on the curve. */
function onCurve(curve: EcCurve, bytes: Uint8Array, message: string): Uint8Array {
  try {
    return ENGINES[curve].Point.fromBytes(Uint8Array.from(bytes)).toBytes(false);
  } catch (cause) {
    throw malformed(message, cause);
  }
}

/**
 * A key from the raw affine coordinates x || y, big-endian, 32 or 48 bytes each.
 * Throws evidence_malformed for a wrong length or a point that is not on the curve.
 */
export function publicKeyFromPoint(curve: EcCurve, point: Uint8Array): VerificationKey {
  if (point.length !== 2 * COORDINATE_BYTES[curve]) {
    throw malformed(`a ${curve} point has ${point.length} bytes`);
  }
  const bytes = Uint8Array.from([4, ...point]);
  return { curve, point: onCurve(curve, bytes, `a point is not on ${curve}`) };
}

/** The raw coordinates x || y of an EC key on P-256 or P-384. Throws evidence_malformed for other keys. */
export function pointOf(key: VerificationKey): Uint8Array {
  if (key === undefined || !('curve' in key)) throw malformed('a public key is not on P-256 or P-384');
  return key.point.slice(1);
}

/**
 * Verifies an ECDSA signature (FIPS 186-5) over the hash of `data`. `encoding` is `der` for the ASN.1
 * SEQUENCE of r and s, `raw` for r || s, big-endian, both exactly as long as the curve's order. False for
 * anything else.
 */
export async function verifyEcdsa(input: {
  readonly key: VerificationKey;
  readonly hash: EcdsaHash;
  readonly encoding: 'raw' | 'der';
  readonly data: Uint8Array;
  readonly signature: Uint8Array;
}): Promise<boolean> {
  const { key, hash, encoding, data, signature } = input;
  if (key === undefined || !('curve' in key)) return false;
  const { curve, point } = key;
  const engine = ENGINES[curve];
  if (encoding === 'raw' && signature.length !== 2 * COORDINATE_BYTES[curve]) return false;
  let raw: Uint8Array;
  try {
    const format = encoding === 'raw' ? 'compact' : 'der';
    raw = engine.Signature.fromBytes(Uint8Array.from(signature), format).toBytes('compact');
  } catch {
    return false;
  }
  const { name, of } = HASHES[hash];
  try {
    const algorithm = { name: 'ECDSA', namedCurve: curve };
    const imported = await crypto.subtle.importKey('raw', owned(point), algorithm, false, ['verify']);
    return await crypto.subtle.verify({ name: 'ECDSA', hash: name }, imported, owned(raw), owned(data));
  } catch {
    return engine.verify(raw, of(data), point, { prehash: false, lowS: false });
  }
}

/**
 * Verifies RSASSA-PSS with SHA-384, MGF1-SHA-384 and a salt of exactly 48 bytes (RFC 8017 8.1;
 * docs/protocol/attestation.md 7). False for any other key type or salt length.
 */
export async function verifyRsaPssSha384(
  key: VerificationKey,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  if (key === undefined || !('spki' in key)) return false;
  try {
    const algorithm = { name: 'RSA-PSS', hash: 'SHA-384' };
    const imported = await crypto.subtle.importKey('spki', owned(key.spki), algorithm, false, ['verify']);
    // Step 1 of RFC 8017 8.1.2. Some engines leave it out: they accept a signature without its leading zeros.
    const { modulusLength } = imported.algorithm as unknown as { readonly modulusLength: number };
    if (8 * signature.length !== modulusLength) return false;
    return await crypto.subtle.verify(
      { name: 'RSA-PSS', saltLength: 48 },
      imported,
      owned(signature),
      owned(data),
    );
  } catch {
    return false;
  }
}

/** A copy in an ArrayBuffer of its own, which the types of Web Crypto demand. */
const owned = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => Uint8Array.from(bytes);

/** The base point without noble's table, which takes 40 ms to make and pays off only after many products. */
const P384_BASE = p384.Point.fromAffine(p384.Point.BASE.toAffine());

/**
 * `scalar` times the base point of P-384 as 0x04 || x || y (SEC 1 2.3.3), 97 bytes; for public data only.
 * Throws unless 0 < scalar < order.
 */
export function multiplyBaseP384(scalar: bigint): Uint8Array {
  return P384_BASE.multiplyUnsafe(scalar).toBytes(false);
}
