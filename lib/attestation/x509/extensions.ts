/** Reads X.509 extensions, and the values of the four of RFC 5280 4.2 that decide something here. */
import {
  contextTag,
  type Der,
  DerCursor,
  expectTag,
  malformed,
  onlyChild,
  parseDer,
  readSequence,
  TAG,
} from '../../crypto/der.ts';
import { readBitString, readBoolean, readOctetString, readOid, readSmallInteger } from './der-values.ts';

export type Extension = Readonly<ReturnType<typeof readExtension>>;

export const EXTENSION_OID = {
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  crlNumber: '2.5.29.20',
  deltaCrlIndicator: '2.5.29.27',
  issuingDistributionPoint: '2.5.29.28',
  nameConstraints: '2.5.29.30',
  crlDistributionPoints: '2.5.29.31',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
} as const;

/** Reads a SEQUENCE of extensions. Refuses a repeated OID (RFC 5280 4.2). */
export function readExtensions(element: Der): readonly Extension[] {
  const found = new Map<string, Extension>();
  for (const next of new DerCursor(element).rest(TAG.sequence)) {
    const extension = readSequence(next, readExtension);
    if (found.has(extension.oid)) throw malformed(`extension ${extension.oid} appears twice`);
    found.set(extension.oid, extension);
  }
  return [...found.values()];
}

function readExtension(cursor: DerCursor) {
  const oid = readOid(cursor.take());
  const critical = cursor.takeIf(TAG.boolean);
  /** DER, except in the extensions of some vendors. */
  const value = readOctetString(cursor.take());
  return { oid, critical: critical !== undefined && readBoolean(critical), value };
}

/**
 * Takes the extensions in wrapper [n], which must be the last element of its SEQUENCE; none if it is absent.
 */
export function takeExtensions(cursor: DerCursor, n: number): readonly Extension[] {
  const wrapper = cursor.takeIf(contextTag(n, true));
  cursor.end();
  return wrapper === undefined ? [] : readExtensions(onlyChild(wrapper));
}

export function extensionValue(extensions: readonly Extension[], oid: string): Uint8Array | undefined {
  return extensions.find((extension) => extension.oid === oid)?.value;
}

/** Reads the extensions of a certificate that decide something here; undefined for those that are absent. */
export function readKnownExtensions(extensions: readonly Extension[]) {
  const read = <T>(oid: string, reader: (element: Der) => T): T | undefined => {
    const value = extensionValue(extensions, oid);
    return value && reader(parseDer(value));
  };
  return {
    basicConstraints: read(EXTENSION_OID.basicConstraints, readBasicConstraints),
    keyUsage: read(EXTENSION_OID.keyUsage, readKeyUsage),
    /** OIDs; at least one. */
    extendedKeyUsage: read(EXTENSION_OID.extendedKeyUsage, readExtendedKeyUsage),
    subjectAltNames: read(EXTENSION_OID.subjectAltName, readAlternativeNames),
  };
}

const readBasicConstraints = (element: Der) =>
  readSequence(element, (cursor) => ({
    ca: cursor.optional(TAG.boolean, readBoolean) ?? false,
    pathLength: cursor.optional(TAG.integer, (length) => readSmallInteger(length, 255)),
  }));

const KEY_USAGES = [
  'digitalSignature',
  'nonRepudiation',
  'keyEncipherment',
  'dataEncipherment',
  'keyAgreement',
  'keyCertSign',
  'cRLSign',
  'encipherOnly',
  'decipherOnly',
] as const;
export type KeyUsage = (typeof KEY_USAGES)[number];

function readKeyUsage(element: Der): ReadonlySet<KeyUsage> {
  const { bytes } = readBitString(element);
  return new Set(KEY_USAGES.filter((_, bit) => (((bytes[bit >> 3] ?? 0) << (bit & 7)) & 0x80) !== 0));
}

function readExtendedKeyUsage(element: Der): readonly string[] {
  const cursor = new DerCursor(element);
  return [readOid(cursor.take(TAG.oid)), ...Array.from(cursor.rest(TAG.oid), readOid)];
}

const GENERAL_NAME_TAGS = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((n) => [
  contextTag(n, false),
  contextTag(n, true),
]);

/** Reads alternative names of the kinds [2], [6] and [7] (RFC 5280 4.2.1.6), and leaves out the others. */
function readAlternativeNames(element: Der) {
  const names = [...new DerCursor(element).rest(...GENERAL_NAME_TAGS)];
  const contents = (kind: number): Uint8Array[] =>
    names.filter(({ tag }) => tag === contextTag(kind, false)).map(({ content }) => content);
  const texts = (kind: number): string[] =>
    contents(kind).map((content) => Buffer.from(content).toString('latin1'));
  return { dns: texts(2), uri: texts(6), /** 4 or 16 bytes each. */ ip: contents(7) };
}

const CONTEXT_0 = contextTag(0, true);
const URI = contextTag(6, false);

/**
 * Where the revocation list of a root is published: the one URI of its one distribution point (RFC 5280
 * 4.2.1.13).
 */
export function crlDistributionPoint(extensions: readonly Extension[]): string {
  const value = extensionValue(extensions, EXTENSION_OID.crlDistributionPoints);
  if (value === undefined) throw malformed('the root names no distribution point for its CRL');
  const point = onlyChild(parseDer(value, TAG.sequence));
  const fullName = onlyChild(readSequence(point, (cursor) => cursor.take(CONTEXT_0)));
  const { content } = expectTag(onlyChild(expectTag(fullName, CONTEXT_0)), URI);
  return Buffer.from(content).toString('latin1');
}
