/**
 * Reads and verifies the form that certificates and CRLs share (RFC 5280 4.1 and 5.1): a SEQUENCE of the
 * signed bytes, the algorithm and the signature. Knows the algorithms that AMD, Intel and Contrast use; a
 * signature by any other algorithm does not verify.
 */
import { type EcdsaHash, type PublicKey, verifyEcdsa, verifyRsaPssSha384 } from '#crypto/signature';
import {
  contextTag,
  type Der,
  DerCursor,
  malformed,
  onlyChild,
  parseDer,
  readSequence,
  TAG,
} from '../../crypto/der.ts';
import { readOid, readSmallInteger, readWholeBitString } from './der-values.ts';

export type SignedObject = Readonly<ReturnType<typeof parseSigned>['signed']>;
export type PssParameters = Readonly<ReturnType<typeof readPssParameters>>;
type SignatureAlgorithm = Readonly<ReturnType<typeof readSignatureAlgorithm>>;

const OID_PSS = '1.2.840.113549.1.1.10';
const OID_MGF1 = '1.2.840.113549.1.1.8';
const OID_SHA1 = '1.3.14.3.2.26';
const OID_SHA384 = '2.16.840.1.101.3.4.2.2';
const ECDSA: Readonly<Record<string, { readonly name: string; readonly hash: EcdsaHash }>> = {
  '1.2.840.10045.4.3.2': { name: 'ecdsa-with-SHA256', hash: 'sha256' },
  '1.2.840.10045.4.3.3': { name: 'ecdsa-with-SHA384', hash: 'sha384' },
};

/**
 * Splits a signed object. The caller compares the algorithm inside the signed bytes (`takeSameAlgorithm`).
 */
export function parseSigned(der: Uint8Array) {
  const { tbs, algorithm, signature } = readSequence(parseDer(der), (cursor) => ({
    tbs: cursor.take(TAG.sequence),
    algorithm: cursor.take(TAG.sequence),
    signature: readWholeBitString(cursor.take(TAG.bitString)),
  }));
  const signatureAlgorithm = readSignatureAlgorithm(algorithm);
  return {
    tbs,
    algorithm,
    signed: { /** The signed bytes. */ tbs: tbs.full, signatureAlgorithm, signature },
  };
}

/** Takes the algorithm inside the signed bytes, which must equal the one outside of them. */
export function takeSameAlgorithm(cursor: DerCursor, algorithm: Der, what: string): void {
  if (Buffer.compare(cursor.take(TAG.sequence).full, algorithm.full) !== 0) {
    throw malformed(`${what} names two signature algorithms`);
  }
}

/** Reads the AlgorithmIdentifier of a signature. ECDSA must have no parameters (RFC 5758 3.2). */
function readSignatureAlgorithm(element: Der) {
  const cursor = new DerCursor(element);
  const oid = readOid(cursor.take());
  const isPss = oid === OID_PSS;
  const pss = isPss ? readPssParameters(cursor.take()) : undefined;
  if (isPss || oid in ECDSA) cursor.end();
  return {
    oid,
    /** A known name, or the OID. */ name: isPss ? 'rsassa-pss' : (ECDSA[oid]?.name ?? oid),
    pss,
  };
}

/**
 * Reads the parameters of RSASSA-PSS (RFC 4055 3.1): each is in its own EXPLICIT wrapper, or has its default.
 */
function readPssParameters(element: Der) {
  const [hash, mask, salt, trailer] = readSequence(element, (cursor) =>
    [0, 1, 2, 3].map((n) => cursor.optional(contextTag(n, true), onlyChild)),
  );
  const readMask = (cursor: DerCursor) => ({
    maskGeneration: readOid(cursor.take()),
    maskHash: readPlainAlgorithm(cursor.take()),
  });
  return {
    ...(mask ? readSequence(mask, readMask) : { maskGeneration: OID_MGF1, maskHash: OID_SHA1 }),
    hash: hash ? readPlainAlgorithm(hash) : OID_SHA1,
    saltLength: salt ? readSmallInteger(salt, 1024) : 20,
    trailer: trailer ? readSmallInteger(trailer, 255) : 1,
  };
}

/** The OID of an AlgorithmIdentifier whose parameters are absent or NULL. */
function readPlainAlgorithm(element: Der): string {
  return readSequence(element, (cursor) => {
    const oid = readOid(cursor.take());
    if (cursor.takeIf(TAG.null)?.content.length) throw malformed('NULL with content');
    return oid;
  });
}

/**
 * Whether the parameters are the ones AMD signs with: SHA-384, MGF1-SHA-384, salt 48, trailer 1
 * (docs/protocol/attestation.md 7).
 */
export function isPssSha384({ pss }: SignatureAlgorithm): boolean {
  return (
    pss !== undefined &&
    pss.hash === OID_SHA384 &&
    pss.maskGeneration === OID_MGF1 &&
    pss.maskHash === OID_SHA384 &&
    pss.saltLength === 48 &&
    pss.trailer === 1
  );
}

/** The algorithm for a person: its name, and its parameters if they are not AMD's. */
export function algorithmText(algorithm: SignatureAlgorithm): string {
  const { name, pss } = algorithm;
  if (pss === undefined || isPssSha384(algorithm)) return name;
  const { hash, maskGeneration, maskHash, saltLength, trailer } = pss;
  return `${name} (hash ${hash}, mask ${maskGeneration} with ${maskHash}, salt ${saltLength}, trailer ${trailer})`;
}

/**
 * Whether the issuer's key made the signature, by the algorithm that the object names; false for an unknown
 * algorithm. Judges the signature alone: other checks judge names, dates, CA flags and key usage.
 */
export async function verifySignedBy(
  signed: SignedObject,
  issuer: { readonly publicKey: PublicKey },
): Promise<boolean> {
  const { tbs: data, signature, signatureAlgorithm } = signed;
  const { key } = issuer.publicKey;
  if (isPssSha384(signatureAlgorithm)) return verifyRsaPssSha384(key, data, signature);
  const hash = ECDSA[signatureAlgorithm.oid]?.hash;
  return hash !== undefined && verifyEcdsa({ key, hash, encoding: 'der', data, signature });
}
