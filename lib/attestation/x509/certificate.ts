/** X.509 v3 certificates (RFC 5280 4.1). Everything here throws PrivatemodeError('evidence_malformed') only. */
import { type PublicKey, publicKeyFromSpki } from '../../crypto/signature.ts';
import { contextTag, DerCursor, malformed, onlyChild, TAG } from './der.ts';
import { readSmallInteger, readTime, readUnsigned } from './der-values.ts';
import {
  type AlternativeNames,
  type BasicConstraints,
  EXTENSION_OID,
  type Extension,
  extensionValue,
  type KeyUsage,
  readAlternativeNames,
  readBasicConstraints,
  readExtendedKeyUsage,
  readExtensions,
  readKeyUsage,
} from './extensions.ts';
import { type Name, readName } from './name.ts';
import { parseSigned, type SignedObject } from './signed.ts';

export { decodeOneCertificate, decodePem, type PemBlock } from './pem.ts';
export { verifySignedBy } from './signed.ts';

export interface Certificate extends SignedObject {
  readonly der: Uint8Array;
  /** 1, 2 or 3. */
  readonly version: number;
  /** Lower-case hex, whole bytes, no leading zero byte; `00` for zero. */
  readonly serial: string;
  readonly issuer: Name;
  readonly subject: Name;
  readonly notBefore: Date;
  readonly notAfter: Date;
  readonly spki: Uint8Array;
  readonly publicKey: PublicKey;
  readonly extensions: readonly Extension[];
  readonly basicConstraints: BasicConstraints | undefined;
  readonly keyUsage: ReadonlySet<KeyUsage> | undefined;
  /** OIDs. */
  readonly extendedKeyUsage: readonly string[] | undefined;
  readonly subjectAltNames: AlternativeNames | undefined;
}

const UNIQUE_ID_TAGS = [1, 2].flatMap((n) => [contextTag(n, false), contextTag(n, true)]);

/** Real ones have under 4 KB. Reading takes time in proportion, before any signature on it is checked. */
const MAX_BYTES = 64 * 1024;

/**
 * One certificate of at most 64 KiB and nothing after it. Serial number 0 is legal here: every VCEK has it
 * (attestation.md 7).
 */
export function parseCertificate(der: Uint8Array): Certificate {
  if (der.length > MAX_BYTES) throw malformed('a certificate is too large');
  const { tbs, algorithm, signed } = parseSigned(der);
  const cursor = new DerCursor(tbs);
  const versionElement = cursor.takeIf(contextTag(0, true));
  const version = versionElement === undefined ? 1 : readSmallInteger(onlyChild(versionElement), 2) + 1;
  const serial = Buffer.from(readUnsigned(cursor.take(TAG.integer))).toString('hex');
  const innerAlgorithm = cursor.take(TAG.sequence);
  if (Buffer.compare(innerAlgorithm.full, algorithm.full) !== 0) {
    throw malformed('a certificate names two signature algorithms');
  }
  const issuer = readName(cursor.take(TAG.sequence));
  const validity = new DerCursor(cursor.take(TAG.sequence));
  const notBefore = readTime(validity.take());
  const notAfter = readTime(validity.take());
  validity.end();
  const subject = readName(cursor.take(TAG.sequence));
  const spki = cursor.take(TAG.sequence).full;
  if (cursor.takeIf(...UNIQUE_ID_TAGS) !== undefined)
    throw malformed('a certificate has a unique identifier');
  const wrapper = cursor.takeIf(contextTag(3, true));
  cursor.end();
  const extensions = wrapper === undefined ? [] : readExtensions(onlyChild(wrapper));
  const read = <T>(oid: string, reader: (value: Uint8Array) => T): T | undefined => {
    const value = extensionValue(extensions, oid);
    return value === undefined ? undefined : reader(value);
  };
  return {
    ...signed,
    der,
    version,
    serial,
    issuer,
    subject,
    notBefore,
    notAfter,
    spki,
    publicKey: publicKeyFromSpki(spki),
    extensions,
    basicConstraints: read(EXTENSION_OID.basicConstraints, readBasicConstraints),
    keyUsage: read(EXTENSION_OID.keyUsage, readKeyUsage),
    extendedKeyUsage: read(EXTENSION_OID.extendedKeyUsage, readExtendedKeyUsage),
    subjectAltNames: read(EXTENSION_OID.subjectAltName, readAlternativeNames),
  };
}

/** Whether `now` lies within the validity, both ends included (RFC 5280 4.1.2.5). */
export function isTimeValid(certificate: Certificate, now: Date): boolean {
  return certificate.notBefore <= now && now <= certificate.notAfter;
}

/** Whether the certificate may sign other certificates: CA flag, and keyCertSign where key usage is stated. */
export function maySignCertificates({ basicConstraints, keyUsage }: Certificate): boolean {
  return basicConstraints?.ca === true && (keyUsage === undefined || keyUsage.has('keyCertSign'));
}

/** OIDs of critical extensions that are not among those the caller handles. */
export function unhandledCritical(
  { extensions }: { readonly extensions: readonly Extension[] },
  handled: readonly string[],
): string[] {
  return extensions.filter(({ oid, critical }) => critical && !handled.includes(oid)).map(({ oid }) => oid);
}
