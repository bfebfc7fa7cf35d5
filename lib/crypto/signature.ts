/**
 * Reads public keys and verifies signatures: ECDSA on P-256 and P-384, and RSASSA-PSS as AMD uses it. Web
 * Crypto is used because every runtime has it and it is four times as fast as @noble/curves on P-384. For a
 * signature that cannot be parsed, the functions resolve with false.
 */
import { p256, p384 } from '@noble/curves/nist.js';
import { sha256, sha384 } from '#crypto';
import { children, malformed, parseDer, readBitString, readSequence, readUnsigned, TAG } from './der.ts';

export type EcCurve = 'P-256' | 'P-384';
export type EcdsaHash = 'sha256' | 'sha384';

/** A public key, with the properties that decide which signatures the key may verify. */
export interface PublicKey {
  /** Keys of type `other`, such as a key restricted to PSS (RFC 4055 3.1), verify no signature. */
  readonly algorithm: 'ec' | 'rsa' | 'other';
  /** The curve, or undefined for an unsupported curve. `point` is 0x04 || x || y. */
  readonly curve?: EcCurve | undefined;
  readonly point?: Uint8Array;
  readonly rsa?: { readonly modulusBits: number; readonly exponent: bigint };
  /** Imports the key for Web Crypto. Rejects for an unsupported key. A key that verifies nothing lacks it. */
  readonly imported?: () => Promise<CryptoKey>;
}

const ENGINES = { 'P-256': p256, 'P-384': p384 } as const;
const HASHES = { sha256: ['SHA-256', sha256], sha384: ['SHA-384', sha384] } as const;
/** The content bytes of object identifiers in hex, without DER tag and length. */
const OID_EC = '2a8648ce3d0201';
const OID_RSA = '2a864886f70d010101';
const CURVES: Readonly<Record<string, EcCurve>> = { '2a8648ce3d030107': 'P-256', '2b81040022': 'P-384' };

const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
/** Copies bytes into an ArrayBuffer of their own, which the types of Web Crypto require. */
const owned = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(bytes);

/** Imports a key only once, because one TDX verification uses the key of Intel's root ten times. */
function importOnce(format: 'spki' | 'raw', key: Uint8Array<ArrayBuffer>, algorithm: { name: string }) {
  let imported: Promise<CryptoKey> | undefined;
  return () => (imported ??= crypto.subtle.importKey(format, key, algorithm, false, ['verify']));
}

/** Reads a SubjectPublicKeyInfo in DER (RFC 5280 4.1.2.7). Throws evidence_malformed. */
export function publicKeyFromSpki(spki: Uint8Array): PublicKey {
  const { algorithm, material } = readSequence(parseDer(spki), (fields) => ({
    algorithm: children(fields.take(TAG.sequence)),
    material: readBitString(fields.take(), 0),
  }));
  const [oid, parameters, ...rest] = algorithm;
  if (oid?.tag !== TAG.oid || rest.length > 0) throw malformed('a public key names no algorithm');
  const name = toHex(oid.content);
  if (name === OID_EC) {
    // RFC 5480 2.1.1: the parameters are the OID of the curve.
    if (parameters?.tag !== TAG.oid) throw malformed('a public key does not name its curve');
    const curve = CURVES[toHex(parameters.content)];
    return curve === undefined ? { algorithm: 'ec' } : publicKeyFromPoint(curve, material);
  }
  if (name !== OID_RSA) return { algorithm: 'other' };
  // RFC 3279 2.3.1: the parameters are NULL.
  if (parameters?.tag !== TAG.null || parameters.content.length > 0)
    throw malformed('an RSA key has parameters');
  // RFC 8017 A.1.1: the type RSAPublicKey.
  const [modulus = 0n, exponent = 0n] = readSequence(parseDer(material), (fields) =>
    [fields.take(), fields.take()].map((number) => BigInt(`0x${toHex(readUnsigned(number))}`)),
  );
  if (modulus === 0n || exponent === 0n) throw malformed('a number of an RSA key is zero');
  const rsa = { modulusBits: modulus.toString(2).length, exponent };
  const pss = { name: 'RSA-PSS', hash: 'SHA-384' };
  return { algorithm: 'rsa', rsa, imported: importOnce('spki', owned(spki), pss) };
}

/**
 * Reads a key from 0x04 || x || y, where x and y are big-endian with 32 or 48 bytes each. Like Go, refuses
 * other encodings of a point. Throws evidence_malformed, also for a point that is not on the curve.
 */
export function publicKeyFromPoint(curve: EcCurve, bytes: Uint8Array): PublicKey {
  const point = owned(bytes);
  const ecdsa = { name: 'ECDSA', namedCurve: curve };
  try {
    // The library also accepts compressed points, which are shorter.
    if (ENGINES[curve].Point.fromBytes(point).toBytes(false).length === point.length)
      return { algorithm: 'ec', curve, point, imported: importOnce('raw', point, ecdsa) };
  } catch {} // the bytes are not a point on the curve
  throw malformed(`a public key is no uncompressed point on ${curve}`);
}

/**
 * Verifies an ECDSA signature (FIPS 186-5) over the hash of `data`. As `der`, the signature is an ASN.1
 * SEQUENCE of r and s; as `raw`, the signature is r || s, each big-endian and as long as the curve's order.
 */
export async function verifyEcdsa(input: {
  readonly key: PublicKey;
  readonly hash: EcdsaHash;
  readonly encoding: 'raw' | 'der';
  readonly data: Uint8Array;
  readonly signature: Uint8Array;
}): Promise<boolean> {
  const { key, hash, encoding, data, signature } = input;
  const { curve, point, imported } = key;
  if (curve === undefined || point === undefined || imported === undefined) return false;
  const engine = ENGINES[curve];
  let raw: Uint8Array;
  try {
    const format = encoding === 'raw' ? 'compact' : 'der';
    raw = engine.Signature.fromBytes(owned(signature), format).toBytes('compact');
  } catch {
    return false;
  }
  const [name, digest] = HASHES[hash];
  try {
    const ecdsa = { name: 'ECDSA', hash: name };
    return await crypto.subtle.verify(ecdsa, await imported(), owned(raw), owned(data));
  } catch {
    // Some runtimes lack a combination of curve and hash, such as P-384 with SHA-256 in a secret exchange.
    return engine.verify(raw, digest(data), point, { prehash: false, lowS: false });
  }
}

/**
 * Verifies RSASSA-PSS with SHA-384, MGF1 with SHA-384, and a salt of exactly 48 bytes (RFC 8017 8.1;
 * docs/protocol/attestation.md 7).
 */
export async function verifyRsaPssSha384(
  { rsa, imported }: PublicKey,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  // RFC 8017 8.1.2, step 1: some engines omit this check and accept signatures without leading zeros.
  if (imported === undefined || 8 * signature.length !== rsa?.modulusBits) return false;
  try {
    const pss = { name: 'RSA-PSS', saltLength: 48 };
    return await crypto.subtle.verify(pss, await imported(), owned(signature), owned(data));
  } catch {
    return false;
  }
}
