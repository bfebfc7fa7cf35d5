/**
 * Reads X.509 v3 certificates (RFC 5280 4.1) and the PEM text (RFC 7468) that holds them. Every function
 * throws only evidence_malformed.
 */
import { publicKeyFromSpki } from '#crypto/signature';
import { contextTag, DerCursor, malformed, onlyChild, readSequence, TAG } from '../../crypto/der.ts';
import { readSerial, readSmallInteger, readTime } from './der-values.ts';
import { type Extension, readKnownExtensions, takeExtensions } from './extensions.ts';
import { readName } from './name.ts';
import { parseSigned, takeSameAlgorithm } from './signed.ts';

export { verifySignedBy } from './signed.ts';

export type Certificate = Readonly<ReturnType<typeof parseCertificate>>;

const UNIQUE_ID_TAGS = [1, 2].flatMap((n) => [contextTag(n, false), contextTag(n, true)]);

/**
 * Real certificates have under 4 KB. The time to read one grows with its size, and no signature on it has
 * been checked by then.
 */
const MAX_BYTES = 64 * 1024;

/**
 * Reads one certificate of at most 64 KiB; refuses bytes after it. Serial number 0 is legal here: every VCEK
 * has it (docs/protocol/attestation.md 7).
 */
export function parseCertificate(der: Uint8Array) {
  if (der.length > MAX_BYTES) throw malformed('a certificate is too large');
  const { tbs, algorithm, signed } = parseSigned(der);
  const cursor = new DerCursor(tbs);
  const version = cursor.optional(contextTag(0, true), (inner) => readSmallInteger(onlyChild(inner), 2)) ?? 0;
  const serial = readSerial(cursor.take(TAG.integer));
  takeSameAlgorithm(cursor, algorithm, 'a certificate');
  const issuer = readName(cursor.take(TAG.sequence));
  const validity = readSequence(cursor.take(TAG.sequence), (times) => ({
    notBefore: readTime(times.take()),
    notAfter: readTime(times.take()),
  }));
  const subject = readName(cursor.take(TAG.sequence));
  const spki = cursor.take(TAG.sequence).full;
  const uniqueId = cursor.takeIf(...UNIQUE_ID_TAGS);
  if (uniqueId !== undefined) throw malformed('a certificate has a unique identifier');
  const extensions = takeExtensions(cursor, 3);
  return {
    ...signed,
    ...validity,
    der,
    /** 1, 2 or 3. */
    version: version + 1,
    serial,
    issuer,
    subject,
    spki,
    publicKey: publicKeyFromSpki(spki),
    extensions,
    ...readKnownExtensions(extensions),
  };
}

/** Whether `now` lies within the validity, both ends included (RFC 5280 4.1.2.5). */
export const isTimeValid = ({ notBefore, notAfter }: Certificate, now: Date): boolean =>
  notBefore <= now && now <= notAfter;

/**
 * Whether the certificate may sign other certificates: it has the CA flag, and keyCertSign if it states a key
 * usage.
 */
export function maySignCertificates({ basicConstraints, keyUsage }: Certificate): boolean {
  return basicConstraints?.ca === true && (keyUsage === undefined || keyUsage.has('keyCertSign'));
}

/** The OIDs of the critical extensions that the caller does not handle. */
export function unhandledCritical(
  { extensions }: { readonly extensions: readonly Extension[] },
  handled: readonly string[],
): string[] {
  return extensions.filter(({ oid, critical }) => critical && !handled.includes(oid)).map(({ oid }) => oid);
}

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----\r?\n([A-Za-z0-9+/=\r\n]*?)\r?\n?-----END \1-----/g;

/**
 * Reads the blocks of a PEM text, at least one. Only white space may stand between and around them, and their
 * base64 must be canonical.
 */
export function decodePem(text: string) {
  const blocks: { readonly label: string; readonly der: Uint8Array }[] = [];
  let end = 0;
  for (const match of text.matchAll(BLOCK)) {
    const [whole, label, body] = match as unknown as [string, string, string];
    if (text.slice(end, match.index).trim() !== '') throw malformed('text stands between PEM blocks');
    const base64 = body.replace(/[\r\n]/g, '');
    const der = new Uint8Array(Buffer.from(base64, 'base64'));
    if (der.length === 0 || Buffer.from(der).toString('base64') !== base64)
      throw malformed('a PEM block is not base64');
    blocks.push({ label, der });
    end = match.index + whole.length;
  }
  if (blocks.length === 0) throw malformed('no PEM block was found');
  if (text.slice(end).trim() !== '') throw malformed('text follows the last PEM block');
  return blocks;
}

/** Characters: room for the largest certificate that is read, in base64 with line breaks. */
const MAX_CERTIFICATE_TEXT = 100_000;

/** The DER of a text that holds exactly one CERTIFICATE block. */
export function decodeOneCertificate(text: string): Uint8Array {
  if (text.length > MAX_CERTIFICATE_TEXT) throw malformed('a certificate in PEM is too large');
  const [block, ...rest] = decodePem(text);
  if (block?.label !== 'CERTIFICATE' || rest.length > 0) throw malformed('not exactly one CERTIFICATE block');
  return block.der;
}
