/**
 * Public keys and the signatures by them: ECDSA on P-256 and P-384, and RSASSA-PSS as AMD signs. Web Crypto
 * verifies, because every runtime has it, and it is four times as fast on P-384 as @noble/curves. A signature
 * that cannot be parsed does not verify: the functions resolve with false for it.
 */
import { p256, p384 } from '@noble/curves/nist.js';
import { sha256, sha384 } from '#crypto';
import { children, malformed, parseDer, readBitString, readSequence, readUnsigned, TAG } from './der.ts';

export type EcCurve = 'P-256' | 'P-384';
export type EcdsaHash = 'sha256' | 'sha384';

/** A key, with the facts that decide which signatures it may verify. */
export interface PublicKey {
  /** `other` is a key that verifies nothing here, one that is bound to PSS (RFC 4055 3.1) among them. */
  readonly algorithm: 'ec' | 'rsa' | 'other';
  /** Undefined for `ec` on another curve, which verifies nothing either. `point`: 0x04 || x || y. */
  readonly curve?: EcCurve | undefined;
  readonly point?: Uint8Array;
  readonly rsa?: { readonly modulusBits: number; readonly exponent: bigint };
  /** The key for Web Crypto; absent if nothing verifies by it. Rejects if the runtime lacks its kind. */
  readonly imported?: () => Promise<CryptoKey>;
}

const ENGINES = { 'P-256': p256, 'P-384': p384 } as const;
const HASHES = { sha256: ['SHA-256', sha256], sha384: ['SHA-384', sha384] } as const;
/** Object identifiers, DER without tag and length, in hex. */
const OID_EC = '2a8648ce3d0201';
const OID_RSA = '2a864886f70d010101';
const CURVES: Readonly<Record<string, EcCurve>> = { '2a8648ce3d030107': 'P-256', '2b81040022': 'P-384' };

const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
/** A copy in an ArrayBuffer of its own, which the types of Web Crypto demand. */
const owned = (bytes: Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(bytes);

/** Imports once: one verification for TDX asks the key of the root ten times. */
function importOnce(format: 'spki' | 'raw', key: Uint8Array<ArrayBuffer>, algorithm: { name: string }) {
  let imported: Promise<CryptoKey> | undefined;
  return () => (imported ??= crypto.subtle.importKey(format, key, algorithm, false, ['verify']));
}

/** Reads a SubjectPublicKeyInfo (DER, RFC 5280 4.1.2.7). Throws evidence_malformed. */
export function publicKeyFromSpki(spki: Uint8Array): PublicKey {
  const { algorithm, material } = readSequence(parseDer(spki), (fields) => ({
    algorithm: children(fields.take(TAG.sequence)),
    material: readBitString(fields.take(), 0),
  }));
  const [oid, parameters, ...rest] = algorithm;
  if (oid?.tag !== TAG.oid || rest.length > 0) throw malformed('a public key names no algorithm');
  const name = toHex(oid.content);
  if (name === OID_EC) {
    // RFC 5480 2.1.1
    if (parameters?.tag !== TAG.oid) throw malformed('a public key does not name its curve');
    const curve = CURVES[toHex(parameters.content)];
    return curve === undefined ? { algorithm: 'ec' } : publicKeyFromPoint(curve, material);
  }
  if (name !== OID_RSA) return { algorithm: 'other' };
  // NULL (RFC 3279 2.3.1)
  if (parameters?.tag !== TAG.null || parameters.content.length > 0)
    throw malformed('an RSA key has parameters');
  // RSAPublicKey (RFC 8017 A.1.1)
  const [modulus = 0n, exponent = 0n] = readSequence(parseDer(material), (fields) =>
    [fields.take(), fields.take()].map((number) => BigInt(`0x${toHex(readUnsigned(number))}`)),
  );
  if (modulus === 0n || exponent === 0n) throw malformed('a number of an RSA key is zero');
  const rsa = { modulusBits: modulus.toString(2).length, exponent };
  const pss = { name: 'RSA-PSS', hash: 'SHA-384' };
  return { algorithm: 'rsa', rsa, imported: importOnce('spki', owned(spki), pss) };
}

/**
 * A key from 0x04 || x || y, big-endian, 32 or 48 bytes each; other forms of points are refused, as Go does.
 * Throws evidence_malformed, also for a point that is not on the curve.
 */
export function publicKeyFromPoint(curve: EcCurve, bytes: Uint8Array): PublicKey {
  const point = owned(bytes);
  const ecdsa = { name: 'ECDSA', namedCurve: curve };
  try {
    // The engine also reads compressed points, which are shorter.
    if (ENGINES[curve].Point.fromBytes(point).toBytes(false).length === point.length)
      return { algorithm: 'ec', curve, point, imported: importOnce('raw', point, ecdsa) };
  } catch {} // no point on the curve
  throw malformed(`a public key is no uncompressed point on ${curve}`);
}

/**
 * Verifies an ECDSA signature (FIPS 186-5) over the hash of `data`. `encoding` is `der` for the ASN.1
 * SEQUENCE of r and s, `raw` for r || s, big-endian, both exactly as long as the curve's order.
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
    // Some runtimes lack a pairing of curve and hash, such as P-384 with the SHA-256 of a secret exchange.
    return engine.verify(raw, digest(data), point, { prehash: false, lowS: false });
  }
}

/**
 * Verifies RSASSA-PSS with SHA-384, MGF1-SHA-384 and a salt of exactly 48 bytes (RFC 8017 8.1;
 * docs/protocol/attestation.md 7).
 */
export async function verifyRsaPssSha384(
  { rsa, imported }: PublicKey,
  data: Uint8Array,
  signature: Uint8Array,
): Promise<boolean> {
  // Step 1 of RFC 8017 8.1.2. Some engines leave it out: they accept a signature without its leading zeros.
  if (imported === undefined || 8 * signature.length !== rsa?.modulusBits) return false;
  try {
    const pss = { name: 'RSA-PSS', saltLength: 48 };
    return await crypto.subtle.verify(pss, await imported(), owned(signature), owned(data));
  } catch {
    return false;
  }
}
