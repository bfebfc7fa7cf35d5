/** X.509 extensions, and the four of RFC 5280 4.2 that decide something here. */
import { contextTag, type Der, DerCursor, malformed, parseDer, TAG } from './der.ts';
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
  const cursor = new DerCursor(element);
  const found = new Map<string, Extension>();
  for (let next = cursor.takeIf(TAG.sequence); next !== undefined; next = cursor.takeIf(TAG.sequence)) {
    const inner = new DerCursor(next);
    const oid = readOid(inner.take(TAG.oid));
    const critical = inner.takeIf(TAG.boolean);
    const value = readOctetString(inner.take(TAG.octetString));
    inner.end();
    if (found.has(oid)) throw malformed(`extension ${oid} appears twice`);
    found.set(oid, { oid, critical: critical !== undefined && readBoolean(critical), value });
  }
  cursor.end();
  return [...found.values()];
}

export function extensionValue(extensions: readonly Extension[], oid: string): Uint8Array | undefined {
  return extensions.find((extension) => extension.oid === oid)?.value;
}

export interface BasicConstraints {
  readonly ca: boolean;
  readonly pathLength: number | undefined;
}

export function readBasicConstraints(value: Uint8Array): BasicConstraints {
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

export function readKeyUsage(value: Uint8Array): ReadonlySet<KeyUsage> {
  const { bytes } = readBitString(parseDer(value));
  return new Set(KEY_USAGES.filter((_, bit) => (((bytes[bit >> 3] ?? 0) << (bit & 7)) & 0x80) !== 0));
}

/** The purposes as OIDs; at least one. */
export function readExtendedKeyUsage(value: Uint8Array): readonly string[] {
  const cursor = new DerCursor(parseDer(value));
  const purposes: string[] = [readOid(cursor.take(TAG.oid))];
  for (let next = cursor.takeIf(TAG.oid); next !== undefined; next = cursor.takeIf(TAG.oid)) {
    purposes.push(readOid(next));
  }
  cursor.end();
  return purposes;
}

/** Alternative names; kinds other than these three are left out. */
export interface AlternativeNames {
  readonly dns: readonly string[];
  readonly uri: readonly string[];
  /** 4 or 16 bytes each. */
  readonly ip: readonly Uint8Array[];
}

const GENERAL_NAME = { dns: contextTag(2, false), uri: contextTag(6, false), ip: contextTag(7, false) };

export function readAlternativeNames(value: Uint8Array): AlternativeNames {
  const names = { dns: [] as string[], uri: [] as string[], ip: [] as Uint8Array[] };
  const cursor = new DerCursor(parseDer(value));
  for (let next = cursor.takeIf(...GENERAL_NAME_TAGS); next; next = cursor.takeIf(...GENERAL_NAME_TAGS)) {
    if (next.tag === GENERAL_NAME.dns) names.dns.push(Buffer.from(next.content).toString('latin1'));
    if (next.tag === GENERAL_NAME.uri) names.uri.push(Buffer.from(next.content).toString('latin1'));
    if (next.tag === GENERAL_NAME.ip) names.ip.push(next.content);
  }
  cursor.end();
  return names;
}

const GENERAL_NAME_TAGS = [0, 1, 2, 3, 4, 5, 6, 7, 8].flatMap((n) => [
  contextTag(n, false),
  contextTag(n, true),
]);
