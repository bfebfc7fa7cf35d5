/**
 * What certificates and CRLs share (RFC 5280 4.1 and 5.1): a SEQUENCE of the signed bytes, the algorithm and the
 * signature; and the algorithms that AMD, Intel and Contrast use. Any other algorithm does not verify.
 */
import { type PublicKey, verifyEcdsa, verifyRsaPssSha384 } from '../../crypto/signature.ts';
import { contextTag, type Der, DerCursor, expectTag, malformed, onlyChild, parseDer, TAG } from './der.ts';
import { readOid, readSmallInteger, readWholeBitString } from './der-values.ts';

export interface SignatureAlgorithm {
  readonly oid: string;
  /** A known name, or the OID. */
  readonly name: string;
  /** RSASSA-PSS only (RFC 4055 3.1), defaults filled in. */
  readonly pss: PssParameters | undefined;
}

export interface PssParameters {
  readonly hash: string;
  readonly maskGeneration: string;
  readonly maskHash: string;
  readonly saltLength: number;
  readonly trailer: number;
}

export interface SignedObject {
  /** The signed bytes. */
  readonly tbs: Uint8Array;
  readonly signatureAlgorithm: SignatureAlgorithm;
  readonly signature: Uint8Array;
}

const OID_PSS = '1.2.840.113549.1.1.10';
const OID_MGF1 = '1.2.840.113549.1.1.8';
const OID_SHA1 = '1.3.14.3.2.26';
const OID_SHA384 = '2.16.840.1.101.3.4.2.2';
const ALGORITHM_NAMES: Readonly<Record<string, string>> = {
  [OID_PSS]: 'rsassa-pss',
  '1.2.840.10045.4.3.2': 'ecdsa-with-SHA256',
  '1.2.840.10045.4.3.3': 'ecdsa-with-SHA384',
};

/** Splits a signed object; the algorithm inside the signed bytes is checked against this one by the caller. */
export function parseSigned(der: Uint8Array): {
  readonly tbs: Der;
  readonly algorithm: Der;
  readonly signed: SignedObject;
} {
  const cursor = new DerCursor(parseDer(der));
  const tbs = cursor.take(TAG.sequence);
  const algorithm = cursor.take(TAG.sequence);
  const signature = readWholeBitString(cursor.take(TAG.bitString));
  cursor.end();
  return {
    tbs,
    algorithm,
    signed: { tbs: tbs.full, signatureAlgorithm: readSignatureAlgorithm(algorithm), signature },
  };
}

/** AlgorithmIdentifier of a signature. ECDSA must have no parameters (RFC 5758 3.2). */
function readSignatureAlgorithm(element: Der): SignatureAlgorithm {
  const cursor = new DerCursor(element);
  const oid = readOid(cursor.take(TAG.oid));
  const name = ALGORITHM_NAMES[oid] ?? oid;
  if (oid === OID_PSS) {
    const pss = readPssParameters(cursor.take(TAG.sequence));
    cursor.end();
    return { oid, name, pss };
  }
  if (name.startsWith('ecdsa')) cursor.end();
  return { oid, name, pss: undefined };
}

/** The OID of an AlgorithmIdentifier whose parameters are absent or NULL. */
function readPlainAlgorithm(element: Der): string {
  const cursor = new DerCursor(element);
  const oid = readOid(cursor.take(TAG.oid));
  const parameters = cursor.takeIf(TAG.null);
  if (parameters !== undefined && parameters.content.length > 0) throw malformed('NULL with content');
  cursor.end();
  return oid;
}

function readPssParameters(element: Der): PssParameters {
  const cursor = new DerCursor(element);
  const inside = (n: number): Der | undefined => {
    const wrapper = cursor.takeIf(contextTag(n, true));
    return wrapper === undefined ? undefined : onlyChild(wrapper);
  };
  const hash = inside(0);
  const mask = inside(1);
  const salt = inside(2);
  const trailer = inside(3);
  cursor.end();
  const maskCursor = mask === undefined ? undefined : new DerCursor(mask);
  const maskGeneration = maskCursor === undefined ? OID_MGF1 : readOid(maskCursor.take(TAG.oid));
  const maskHash = maskCursor === undefined ? OID_SHA1 : readPlainAlgorithm(maskCursor.take(TAG.sequence));
  maskCursor?.end();
  return {
    hash: hash === undefined ? OID_SHA1 : readPlainAlgorithm(expectTag(hash, TAG.sequence)),
    maskGeneration,
    maskHash,
    saltLength: salt === undefined ? 20 : readSmallInteger(salt, 1024),
    trailer: trailer === undefined ? 1 : readSmallInteger(trailer, 255),
  };
}

/** Whether the parameters are the ones AMD signs with: SHA-384, MGF1-SHA-384, salt 48, trailer 1 (attestation.md 7). */
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

/**
 * Whether the issuer's key made the signature, by the algorithm that the object names. Only the signature:
 * names, dates, CA flags and key usage are questions of their own. False for an algorithm that is not known.
 */
export function verifySignedBy(signed: SignedObject, issuer: { readonly publicKey: PublicKey }): boolean {
  const { tbs: data, signature, signatureAlgorithm } = signed;
  const { key } = issuer.publicKey;
  switch (signatureAlgorithm.name) {
    case 'rsassa-pss':
      return isPssSha384(signatureAlgorithm) && verifyRsaPssSha384(key, data, signature);
    case 'ecdsa-with-SHA256':
      return verifyEcdsa({ key, hash: 'sha256', encoding: 'der', data, signature });
    case 'ecdsa-with-SHA384':
      return verifyEcdsa({ key, hash: 'sha384', encoding: 'der', data, signature });
    default:
      return false;
  }
}
