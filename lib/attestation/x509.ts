/**
 * Reads X.509 v3 certificates and certificate revocation lists (RFC 5280 4.1, 5), and verifies their
 * signatures. Every function throws evidence_malformed only.
 */
import * as asn1 from '../crypto/der.ts';
import { malformed } from '../crypto/der.ts';
import { type EcdsaHash, publicKeyFromSpki, verifyEcdsa, verifyRsaPssSha384 } from '../crypto/signature.ts';
import { hex } from './check.ts';

/** PSS with SHA-384, MGF1 with SHA-384, a 48-byte salt (RFC 4055 3.1; docs/protocol/attestation.md 7). */
const PSS =
  'a00f300d06096086480165030402020500a11c301a06092a864886f70d010108300d06096086480165030402020500a203020130';
/**
 * Signature algorithms, by the DER of the whole AlgorithmIdentifier. ECDSA has a `hash` but no parameters
 * (RFC 5758 3.2). AMD writes the parameters of RSASSA-PSS with or without the trailer field.
 */
const ALGORITHMS: Readonly<Record<string, { readonly name: string; readonly hash?: EcdsaHash }>> = {
  [`304106092a864886f70d01010a3034${PSS}`]: { name: 'rsassa-pss' },
  [`304606092a864886f70d01010a3039${PSS}a303020101`]: { name: 'rsassa-pss' },
  '300a06082a8648ce3d040302': { name: 'ecdsa-with-SHA256', hash: 'sha256' },
  '300a06082a8648ce3d040303': { name: 'ecdsa-with-SHA384', hash: 'sha384' },
};

/** Refuses known algorithms with other parameters. An unknown algorithm (named by OID) never verifies. */
function readAlgorithm(element: asn1.Der): (typeof ALGORITHMS)[string] {
  const known = ALGORITHMS[hex(element.full)];
  if (known !== undefined) return known;
  const oid = new asn1.DerCursor(element).take();
  const name = asn1.readOid(oid);
  if (Object.keys(ALGORITHMS).some((algorithm) => algorithm.startsWith(hex(oid.full), 4)))
    throw malformed(`the signature algorithm ${name} has other parameters`);
  return { name };
}

export type Signed = Readonly<ReturnType<typeof readSigned>>;

/**
 * Reads the structure of certificates and CRLs: signed part, algorithm, signature. `read` reads all elements
 * of the signed part, and calls `takeAlgorithm` at the place where the signed part repeats the algorithm.
 */
function readSigned<T>(der: Uint8Array, read: (cursor: asn1.DerCursor, takeAlgorithm: () => void) => T) {
  const { tbs, algorithm, signature } = asn1.readSequence(asn1.parseDer(der), (cursor) => ({
    tbs: cursor.take(asn1.TAG.sequence),
    algorithm: cursor.take(asn1.TAG.sequence),
    signature: asn1.readBitString(cursor.take(asn1.TAG.bitString), 0),
  }));
  const signatureAlgorithm = readAlgorithm(algorithm);
  const fields = asn1.readSequence(tbs, (cursor) =>
    read(cursor, () => {
      if (hex(cursor.take(asn1.TAG.sequence).full) !== hex(algorithm.full))
        throw malformed('it names two signature algorithms');
    }),
  );
  return { ...fields, tbs: tbs.full, signatureAlgorithm, signature };
}

/**
 * Whether the issuer's key made the signature with the algorithm that certificate or CRL names. A signature
 * with an unknown algorithm never verifies. Names, dates, CA flags and key usage are left to other checks.
 */
export async function verifySignedBy(
  { tbs: data, signatureAlgorithm, signature }: Signed,
  { publicKey: key }: Pick<Certificate, 'publicKey'>,
): Promise<boolean> {
  const { name, hash } = signatureAlgorithm;
  if (name === 'rsassa-pss') return verifyRsaPssSha384(key, data, signature);
  return hash !== undefined && verifyEcdsa({ key, hash, encoding: 'der', data, signature });
}

export type Certificate = Readonly<ReturnType<typeof parseCertificate>>;

/** The most bytes of a certificate. Parsing precedes all signature checks. Real ones have under 4 KB. */
const MAX_BYTES = 64 * 1024;

/**
 * Reads one certificate of at most 64 KiB. Refuses trailing bytes and unique identifiers. The serial number 0
 * is allowed, because every VCEK has the serial number 0 (docs/protocol/attestation.md 7).
 */
export function parseCertificate(der: Uint8Array) {
  if (der.length > MAX_BYTES) throw malformed('a certificate is too large');
  return readSigned(der, (cursor, takeAlgorithm) => {
    const version = cursor.optional(asn1.contextTag(0, true), (inner) =>
      asn1.readSmallInteger(asn1.onlyChild(inner), 2),
    );
    const serial = asn1.readSerial(cursor.take(asn1.TAG.integer));
    takeAlgorithm();
    const issuer = readName(cursor.take(asn1.TAG.sequence));
    const validity = asn1.readSequence(cursor.take(asn1.TAG.sequence), (times) => ({
      notBefore: asn1.readTime(times.take()),
      notAfter: asn1.readTime(times.take()),
    }));
    const subject = readName(cursor.take(asn1.TAG.sequence));
    const spki = cursor.take(asn1.TAG.sequence).full;
    const extensions = takeExtensions(cursor, 3);
    const read = <T>(oid: string, reader: (element: asn1.Der) => T): T | undefined => {
      const value = extensions.get(oid)?.value;
      return value && reader(asn1.parseDer(value));
    };
    return {
      ...validity,
      der,
      /** The version of X.509: 1, 2 or 3. */
      version: (version ?? 0) + 1,
      serial,
      issuer,
      subject,
      spki,
      publicKey: publicKeyFromSpki(spki),
      extensions,
      basicConstraints: read(EXTENSION_OID.basicConstraints, readBasicConstraints),
      keyUsage: read(EXTENSION_OID.keyUsage, readKeyUsage),
      /** The purposes of the key as a list of at least one OID. */
      extendedKeyUsage: read(EXTENSION_OID.extendedKeyUsage, readExtendedKeyUsage),
    };
  });
}

/** Reads a PEM text that must contain exactly one certificate and nothing else. */
export const certificateIn = (pem: string): Certificate => parseCertificate(asn1.decodeOneCertificate(pem));

/** Reads a PEM text that must contain only certificates, at least one. */
export const certificatesIn = (pem: string): Certificate[] =>
  asn1.decodeCertificates(pem).map(parseCertificate);

/** Whether the certificate has the CA flag and, if it states a key usage, the usage keyCertSign. */
export const maySignCertificates = ({ basicConstraints, keyUsage }: Certificate): boolean =>
  basicConstraints?.ca === true && keyUsage?.has('keyCertSign') !== false;

export const EXTENSION_OID = {
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

/** Extensions by their OID. The value of an extension is DER, except in some vendor extensions. */
type Extensions = ReadonlyMap<string, { readonly critical: boolean; readonly value: Uint8Array }>;

/** Reads a SEQUENCE of extensions. Refuses an OID that appears twice (RFC 5280 4.2). */
function readExtensions(element: asn1.Der): Extensions {
  const found = new Map<string, { critical: boolean; value: Uint8Array }>();
  for (const next of new asn1.DerCursor(element).rest(asn1.TAG.sequence)) {
    const { oid, ...extension } = asn1.readSequence(next, (cursor) => ({
      oid: asn1.readOid(cursor.take()),
      critical: cursor.optional(asn1.TAG.boolean, asn1.readBoolean) ?? false,
      value: asn1.readOctetString(cursor.take()),
    }));
    if (found.has(oid)) throw malformed(`extension ${oid} appears twice`);
    found.set(oid, extension);
  }
  return found;
}

/** Takes the extensions in the context-specific wrapper [n]. Without the wrapper, there are no extensions. */
const takeExtensions = (cursor: asn1.DerCursor, n: number): Extensions =>
  cursor.optional(asn1.contextTag(n, true), (wrapper) => readExtensions(asn1.onlyChild(wrapper))) ??
  new Map();

/** Returns the OID of a critical extension that is not in `handled`, or undefined if there is none. */
export const unhandledCritical = (extensions: Extensions, ...handled: readonly string[]) =>
  [...extensions].find(([oid, { critical }]) => critical && !handled.includes(oid))?.[0];

const readBasicConstraints = (element: asn1.Der) =>
  asn1.readSequence(element, (cursor) => ({
    ca: cursor.optional(asn1.TAG.boolean, asn1.readBoolean) ?? false,
    pathLength: cursor.optional(asn1.TAG.integer, (length) => asn1.readSmallInteger(length, 255)),
  }));

/** The key usages in the order of their bits in the extension (RFC 5280 4.2.1.3). */
const KEY_USAGES = [
  ...['digitalSignature', 'nonRepudiation', 'keyEncipherment', 'dataEncipherment', 'keyAgreement'],
  ...['keyCertSign', 'cRLSign', 'encipherOnly', 'decipherOnly'],
];

function readKeyUsage(element: asn1.Der): ReadonlySet<string> {
  const bytes = asn1.readBitString(element, 7);
  return new Set(KEY_USAGES.filter((_, bit) => (((bytes[bit >> 3] ?? 0) << (bit & 7)) & 0x80) !== 0));
}

const readExtendedKeyUsage = (element: asn1.Der): readonly string[] =>
  asn1.readSequence(element, (cursor) => [cursor.take(), ...cursor.rest()].map(asn1.readOid));

/** The URI of the root's CRL, which must be the only URI that the root names (RFC 5280 4.2.1.13). */
export function crlDistributionPoint({ extensions }: Certificate): string {
  const value = extensions.get(EXTENSION_OID.crlDistributionPoints)?.value;
  if (value === undefined) throw malformed('the root names no distribution point for its CRL');
  const point = asn1.onlyChild(asn1.parseDer(value, asn1.TAG.sequence));
  const name = asn1.readSequence(point, (cursor) => asn1.onlyChild(cursor.take(asn1.contextTag(0, true))));
  const uri = asn1.onlyChild(asn1.expectTag(name, asn1.contextTag(0, true)));
  return Buffer.from(asn1.expectTag(uri, asn1.contextTag(6, false)).content).toString('latin1');
}

export type Name = Readonly<ReturnType<typeof readName>>;

const SHORT_NAMES: Readonly<Record<string, string>> = {
  '2.5.4.3': 'CN',
  '2.5.4.6': 'C',
  '2.5.4.7': 'L',
  '2.5.4.8': 'ST',
  '2.5.4.10': 'O',
  '2.5.4.11': 'OU',
};

/**
 * Reads a name: its DER, and its attributes in the order in which they appear. The `type` of an attribute is
 * its short name (`CN`, `O` …), or else its OID (RFC 5280 4.1.2.4).
 */
function readName(element: asn1.Der) {
  const attributes = asn1.children(asn1.expectTag(element, asn1.TAG.sequence)).flatMap((rdn) => {
    const pairs = asn1.children(asn1.expectTag(rdn, asn1.TAG.set));
    if (pairs.length === 0) throw malformed('an empty relative distinguished name');
    return pairs.map((pair) => asn1.readSequence(pair, readAttribute));
  });
  return { der: element.full, attributes };
}

function readAttribute(cursor: asn1.DerCursor) {
  const oid = asn1.readOid(cursor.take());
  return { type: SHORT_NAMES[oid] ?? oid, value: asn1.readText(cursor.take()) };
}

/** Whether two names have the same DER. AMD, Intel and the coordinator encode equal names identically. */
export const sameName = (a: Name, b: Name): boolean => hex(a.der) === hex(b.der);

/** The common name (CN), or undefined if the name has no common name or more than one. */
export function commonName({ attributes }: Name): string | undefined {
  const [name, ...others] = attributes.filter(({ type }) => type === 'CN');
  return others.length === 0 ? name?.value : undefined;
}

/** The name as text for a person: `CN=SEV-Genoa, O=…`. */
export const nameText = ({ attributes }: Name): string =>
  attributes.map(({ type, value }) => `${type}=${value}`).join(', ');

const PARTIAL = [EXTENSION_OID.deltaCrlIndicator, EXTENSION_OID.issuingDistributionPoint];

export type Crl = Readonly<ReturnType<typeof parseCrl>>;

/**
 * Reads a certificate revocation list (CRL) of version 2 with a CRL number. Refuses trailing bytes. Refuses
 * delta CRLs and CRLs of partial scope, even if the extension is not critical. Refuses any critical extension
 * of the CRL or an entry, because critical extensions change the meaning of the CRL.
 */
export const parseCrl = (der: Uint8Array) =>
  readSigned(der, (cursor, takeAlgorithm) => {
    if (asn1.readSmallInteger(cursor.take(), 1) !== 1) throw malformed('a CRL of another version');
    takeAlgorithm();
    const issuer = readName(cursor.take());
    const thisUpdate = asn1.readTime(cursor.take());
    const { utcTime, generalizedTime } = asn1.TAG;
    const nextUpdate =
      cursor.optional(utcTime, asn1.readTime) ?? cursor.optional(generalizedTime, asn1.readTime);
    const entries = cursor.optional(asn1.TAG.sequence, asn1.children) ?? [];
    const extensions = takeExtensions(cursor, 0);
    refuseCritical(extensions);
    for (const oid of PARTIAL) if (extensions.has(oid)) throw malformed('a CRL that is not the whole list');
    const number = extensions.get(EXTENSION_OID.crlNumber);
    if (number === undefined) throw malformed('a CRL without a number');
    return {
      issuer,
      thisUpdate,
      nextUpdate,
      /** The serial numbers of revoked certificates, in the same form as `Certificate.serial`. */
      revoked: new Set(entries.map(readRevoked)),
      crlNumber: asn1.readSerial(asn1.parseDer(number.value)),
    };
  });

/** Reads a CRL entry: the serial number of a revoked certificate, the revocation date, and extensions. */
const readRevoked = (element: asn1.Der): string =>
  asn1.readSequence(element, (entry) => {
    const serial = asn1.readSerial(entry.take());
    asn1.readTime(entry.take());
    refuseCritical(entry.optional(asn1.TAG.sequence, readExtensions) ?? new Map());
    return serial;
  });

function refuseCritical(extensions: Extensions): void {
  const oid = unhandledCritical(extensions);
  if (oid !== undefined) throw malformed(`a CRL has the critical extension ${oid}`);
}
