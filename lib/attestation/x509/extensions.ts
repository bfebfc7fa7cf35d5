/** X.509 extensions, and the four of RFC 5280 4.2 that decide something here. */
import { contextTag, type Der, DerCursor, malformed, onlyChild, parseDer, TAG } from './der.ts';
import { readBitString, readBoolean, readOctetString, readOid, readSmallInteger } from './der-values.ts';

export interface Extension {
  readonly oid: string;
  readonly critical: boolean;
  /** What the OCTET STRING holds: DER for all but some vendors' extensions. */
  readonly value: Uint8Array;
}

export const EXTENSION_OID = {
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  crlNumber: '2.5.29.20',
  crlDistributionPoints: '2.5.29.31',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
} as const;

/** A SEQUENCE of extensions. A repeated OID is refused (RFC 5280 4.2). */
export function readExtensions(element: Der): readonly Extension[] {
  const found = new Map<string, Extension>();
  for (const next of new DerCursor(element).rest(TAG.sequence)) {
    const inner = new DerCursor(next);
    const oid = readOid(inner.take(TAG.oid));
    const critical = inner.takeIf(TAG.boolean);
    const value = readOctetString(inner.take(TAG.octetString));
    inner.end();
    if (found.has(oid)) throw malformed(`extension ${oid} appears twice`);
    found.set(oid, { oid, critical: critical !== undefined && readBoolean(critical), value });
  }
  return [...found.values()];
}

/** The extensions in wrapper [n], the last element of a SEQUENCE; none where it is absent. */
export function takeExtensions(cursor: DerCursor, n: number): readonly Extension[] {
  const wrapper = cursor.takeIf(contextTag(n, true));
  cursor.end();
  return wrapper === undefined ? [] : readExtensions(onlyChild(wrapper));
}

export function extensionValue(extensions: readonly Extension[], oid: string): Uint8Array | undefined {
  return extensions.find((extension) => extension.oid === oid)?.value;
}

/** The extensions of a certificate that decide something here; undefined where absent. */
export interface KnownExtensions {
  readonly basicConstraints: { readonly ca: boolean; readonly pathLength: number | undefined } | undefined;
  readonly keyUsage: ReadonlySet<KeyUsage> | undefined;
  /** OIDs; at least one. */
  readonly extendedKeyUsage: readonly string[] | undefined;
  readonly subjectAltNames: AlternativeNames | undefined;
}

export function readKnownExtensions(extensions: readonly Extension[]): KnownExtensions {
  const read = <T>(oid: string, reader: (value: Uint8Array) => T): T | undefined => {
    const value = extensionValue(extensions, oid);
    return value && reader(value);
  };
  return {
    basicConstraints: read(EXTENSION_OID.basicConstraints, readBasicConstraints),
    keyUsage: read(EXTENSION_OID.keyUsage, readKeyUsage),
    extendedKeyUsage: read(EXTENSION_OID.extendedKeyUsage, readExtendedKeyUsage),
    subjectAltNames: read(EXTENSION_OID.subjectAltName, readAlternativeNames),
  };
}

function readBasicConstraints(value: Uint8Array): KnownExtensions['basicConstraints'] {
  const cursor = new DerCursor(parseDer(value));
  const ca = cursor.takeIf(TAG.boolean);
  const pathLength = cursor.takeIf(TAG.integer);
  cursor.end();
  return {
    ca: ca !== undefined && readBoolean(ca),
    pathLength: pathLength === undefined ? undefined : readSmallInteger(pathLength, 255),
  };
}

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

function readKeyUsage(value: Uint8Array): ReadonlySet<KeyUsage> {
  const { bytes } = readBitString(parseDer(value));
  return new Set(KEY_USAGES.filter((_, bit) => (((bytes[bit >> 3] ?? 0) << (bit & 7)) & 0x80) !== 0));
}

function readExtendedKeyUsage(value: Uint8Array): readonly string[] {
  const cursor = new DerCursor(parseDer(value));
  return [readOid(cursor.take(TAG.oid)), ...Array.from(cursor.rest(TAG.oid), readOid)];
}

/** Alternative names; kinds other than these three are left out. */
export interface AlternativeNames {
  readonly dns: readonly string[];
  readonly uri: readonly string[];
  /** 4 or 16 bytes each. */
  readonly ip: readonly Uint8Array[];
}

const GENERAL_NAME = { dns: 2, uri: 6, ip: 7 };
const GENERAL_NAME_TAGS = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((n) => [
  contextTag(n, false),
  contextTag(n, true),
]);

function readAlternativeNames(value: Uint8Array): AlternativeNames {
  const names = [...new DerCursor(parseDer(value)).rest(...GENERAL_NAME_TAGS)];
  const contents = (kind: number): Uint8Array[] =>
    names.filter(({ tag }) => tag === contextTag(kind, false)).map(({ content }) => content);
  const texts = (kind: number): string[] =>
    contents(kind).map((content) => Buffer.from(content).toString('latin1'));
  return { dns: texts(GENERAL_NAME.dns), uri: texts(GENERAL_NAME.uri), ip: contents(GENERAL_NAME.ip) };
}
