/**
 * Public keys and signature verification where node:crypto is absent: the twin of ../signature.ts. Web Crypto verifies; where it
 * lacks a pairing of curve and hash, @noble/curves does. @noble/curves also decides whether a point is on its curve.
 */
import { p256, p384 } from '@noble/curves/nist.js';
import { PrivatemodeError } from '../../errors.ts';
import { sha256, sha384 } from './digest.ts';

export type EcCurve = 'P-256' | 'P-384';
export type EcdsaHash = 'sha256' | 'sha384';

/** What a signature is verified with. */
export type VerificationKey =
  | { readonly curve: EcCurve /** 0x04 || x || y. */; readonly point: Uint8Array }
  | { readonly spki: Uint8Array }
  | undefined;

/** A key of a certificate, with what decides whether it may be used for a given signature. */
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
const TAG = { integer: 0x02, bitString: 0x03, oid: 0x06, sequence: 0x30 } as const;

const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

const malformed = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('evidence_malformed', message, { cause });

/** The elements that follow each other in these bytes (X.690 8.1, definite lengths). */
function elements(der: Uint8Array): { readonly tag: number; readonly content: Uint8Array }[] {
  const found = [];
  for (let at = 0; at < der.length; ) {
    const tag = der[at]!;
    let length = der[at + 1] ?? 0xff;
    let start = at + 2;
    if (length >= 0x80) {
      const count = length & 0x7f;
      length = 0;
      for (const byte of der.subarray(start, start + count)) length = length * 256 + byte;
      if (count === 0 || count > 3) length = Number.POSITIVE_INFINITY;
      start += count;
    }
    if (start + length > der.length) throw malformed('a public key cannot be read');
    found.push({ tag, content: der.subarray(start, start + length) });
    at = start + length;
  }
  return found;
}

/** The contents of a SEQUENCE with elements of these tags; what follows them is not looked at. */
function sequence(der: Uint8Array, ...tags: number[]): Uint8Array[] {
  const [outer, ...more] = elements(der);
  const inner = outer?.tag === TAG.sequence && more.length === 0 ? elements(outer.content) : [];
  if (!tags.every((tag, i) => inner[i]?.tag === tag)) throw malformed('a public key cannot be read');
  return inner.map(({ content }) => content);
}

/**
 * Reads a SubjectPublicKeyInfo (DER, RFC 5280 4.1.2.7). Points that are not on their curve are refused.
 * Throws evidence_malformed.
 */
export function publicKeyFromSpki(spki: Uint8Array): PublicKey {
  const outer = elements(spki)[0]?.content ?? new Uint8Array(0);
  const [, bits] = sequence(spki, TAG.sequence, TAG.bitString);
  const algorithm = elements(outer)[0]?.content ?? new Uint8Array(0);
  const [oid, parameters] = elements(algorithm);
  if (oid?.tag !== TAG.oid || bits![0] !== 0) throw malformed('a public key cannot be read');
  const name = toHex(oid.content);
  const material = bits!.subarray(1);
  if (OID_RSA.includes(name)) {
    const rsa = rsaOf(material);
    return { key: { spki: Uint8Array.from(spki) }, algorithm: 'rsa', curve: undefined, rsa };
  }
  if (name !== OID_EC) return { key: undefined, algorithm: 'other', curve: undefined, rsa: undefined };
  const curve = parameters?.tag === TAG.oid ? CURVE_OF_OID[toHex(parameters.content)] : undefined;
  const key = curve && { curve, point: onCurve(curve, material, 'a public key cannot be read') };
  return { key, algorithm: 'ec', curve, rsa: undefined };
}

/** Reads an RSAPublicKey (DER, RFC 8017 A.1.1). Throws evidence_malformed. */
export function publicKeyFromPkcs1(der: Uint8Array): PublicKey {
  return { key: undefined, algorithm: 'rsa', curve: undefined, rsa: rsaOf(der) };
}

function rsaOf(der: Uint8Array): NonNullable<PublicKey['rsa']> {
  const [modulus, exponent] = sequence(der, TAG.integer, TAG.integer).map((bytes) =>
    BigInt(`0x0${toHex(bytes)}`),
  );
  return { modulusBits: modulus!.toString(2).length, exponent: exponent! };
}

/** The point uncompressed. Throws evidence_malformed where it is not on the curve. */
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
 * Verifies an ECDSA signature (FIPS 186-5) over the hash of `data`. `encoding` is `der` for the ASN.1 SEQUENCE
 * of r and s, `raw` for r || s, big-endian, both exactly as long as the curve's order. False for anything else.
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

/** A copy in memory of its own, which is what Web Crypto's types ask for. */
const owned = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => Uint8Array.from(bytes);
