/**
 * Reads X.509 v3 certificates (RFC 5280 4.1) and the PEM text (RFC 7468) that holds them, and verifies who
 * signed a certificate or a revocation list. Every function throws evidence_malformed only.
 */
import {
  children,
  contextTag,
  type Der,
  DerCursor,
  expectTag,
  malformed,
  onlyChild,
  parseDer,
  readSequence,
  TAG,
} from '../crypto/der.ts';
import {
  readBitString,
  readBoolean,
  readOctetString,
  readOid,
  readSerial,
  readSmallInteger,
  readText,
  readTime,
} from '../crypto/der-values.ts';
import {
  type EcdsaHash,
  type PublicKey,
  publicKeyFromSpki,
  verifyEcdsa,
  verifyRsaPssSha384,
} from '../crypto/signature.ts';

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

/** SHA-384, MGF1 with SHA-384, a salt of 48 bytes (RFC 4055 3.1; docs/protocol/attestation.md 7). */
const PSS =
  'a00f300d06096086480165030402020500a11c301a06092a864886f70d010108300d06096086480165030402020500a203020130';
/**
 * By the whole AlgorithmIdentifier in DER; `hash` is that of ECDSA, which has no parameters (RFC 5758 3.2).
 * AMD's parameters of RSASSA-PSS end with the trailer or leave it out.
 */
const ALGORITHMS: Readonly<Record<string, { readonly name: string; readonly hash?: EcdsaHash }>> = {
  [`304106092a864886f70d01010a3034${PSS}`]: { name: 'rsassa-pss' },
  [`304606092a864886f70d01010a3039${PSS}a303020101`]: { name: 'rsassa-pss' },
  '300a06082a8648ce3d040302': { name: 'ecdsa-with-SHA256', hash: 'sha256' },
  '300a06082a8648ce3d040303': { name: 'ecdsa-with-SHA384', hash: 'sha384' },
};

/** Refuses other parameters of these algorithms. By any other, nothing verifies; its name is its OID. */
function readAlgorithm(element: Der): (typeof ALGORITHMS)[string] {
  const known = ALGORITHMS[hex(element.full)];
  if (known !== undefined) return known;
  const oid = new DerCursor(element).take();
  const name = readOid(oid);
  if (Object.keys(ALGORITHMS).some((algorithm) => algorithm.startsWith(hex(oid.full), 4)))
    throw malformed(`the signature algorithm ${name} has other parameters`);
  return { name };
}

export type Signed = Readonly<ReturnType<typeof readSigned>>;

/**
 * Reads the form that certificates and lists share: the signed part, the algorithm and the signature. `read`
 * takes all elements of the signed part, by `takeAlgorithm` the one that must be the same algorithm again.
 */
export function readSigned<T>(der: Uint8Array, read: (cursor: DerCursor, takeAlgorithm: () => void) => T) {
  const { tbs, algorithm, signature } = readSequence(parseDer(der), (cursor) => ({
    tbs: cursor.take(TAG.sequence),
    algorithm: cursor.take(TAG.sequence),
    signature: readBitString(cursor.take(TAG.bitString), 0),
  }));
  const signatureAlgorithm = readAlgorithm(algorithm);
  const fields = readSequence(tbs, (cursor) =>
    read(cursor, () => {
      if (hex(cursor.take(TAG.sequence).full) !== hex(algorithm.full))
        throw malformed('it names two signature algorithms');
    }),
  );
  return { ...fields, tbs: tbs.full, signatureAlgorithm, signature };
}

/**
 * Whether the issuer's key made the signature, by the algorithm that the object names; false for an unknown
 * algorithm. Judges the signature alone: other checks judge names, dates, CA flags and key usage.
 */
export async function verifySignedBy(
  { tbs: data, signatureAlgorithm, signature }: Signed,
  { publicKey: key }: { readonly publicKey: PublicKey },
): Promise<boolean> {
  const { name, hash } = signatureAlgorithm;
  if (name === 'rsassa-pss') return verifyRsaPssSha384(key, data, signature);
  return hash !== undefined && verifyEcdsa({ key, hash, encoding: 'der', data, signature });
}

export type Certificate = Readonly<ReturnType<typeof parseCertificate>>;

/** Real ones have under 4 KB. The time to read one grows with its size, before any signature is checked. */
const MAX_BYTES = 64 * 1024;

/**
 * Reads one certificate of at most 64 KiB; refuses bytes after it, and unique identifiers. Serial number 0 is
 * legal here: every VCEK has it (docs/protocol/attestation.md 7).
 */
export function parseCertificate(der: Uint8Array) {
  if (der.length > MAX_BYTES) throw malformed('a certificate is too large');
  return readSigned(der, (cursor, takeAlgorithm) => {
    const version = cursor.optional(contextTag(0, true), (inner) => readSmallInteger(onlyChild(inner), 2));
    const serial = readSerial(cursor.take(TAG.integer));
    takeAlgorithm();
    const issuer = readName(cursor.take(TAG.sequence));
    const validity = readSequence(cursor.take(TAG.sequence), (times) => ({
      notBefore: readTime(times.take()),
      notAfter: readTime(times.take()),
    }));
    const subject = readName(cursor.take(TAG.sequence));
    const spki = cursor.take(TAG.sequence).full;
    const extensions = takeExtensions(cursor, 3);
    const read = <T>(oid: string, reader: (element: Der) => T): T | undefined => {
      const value = extensions.get(oid)?.value;
      return value && reader(parseDer(value));
    };
    return {
      ...validity,
      der,
      /** 1, 2 or 3. */
      version: (version ?? 0) + 1,
      serial,
      issuer,
      subject,
      spki,
      publicKey: publicKeyFromSpki(spki),
      extensions,
      basicConstraints: read(EXTENSION_OID.basicConstraints, readBasicConstraints),
      keyUsage: read(EXTENSION_OID.keyUsage, readKeyUsage),
      /** OIDs; at least one. */
      extendedKeyUsage: read(EXTENSION_OID.extendedKeyUsage, readExtendedKeyUsage),
    };
  });
}

/** Whether it has the CA flag, and keyCertSign if it states a key usage. */
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

/** By OID. A value is DER, except in the extensions of some vendors. */
export type Extensions = ReadonlyMap<string, { readonly critical: boolean; readonly value: Uint8Array }>;

/** Reads a SEQUENCE of extensions. Refuses a repeated OID (RFC 5280 4.2). */
export function readExtensions(element: Der): Extensions {
  const found = new Map<string, { critical: boolean; value: Uint8Array }>();
  for (const next of new DerCursor(element).rest(TAG.sequence)) {
    const { oid, ...extension } = readSequence(next, (cursor) => ({
      oid: readOid(cursor.take()),
      critical: cursor.optional(TAG.boolean, readBoolean) ?? false,
      value: readOctetString(cursor.take()),
    }));
    if (found.has(oid)) throw malformed(`extension ${oid} appears twice`);
    found.set(oid, extension);
  }
  return found;
}

/** Takes the extensions in wrapper [n]; none if it is absent. */
export const takeExtensions = (cursor: DerCursor, n: number): Extensions =>
  cursor.optional(contextTag(n, true), (wrapper) => readExtensions(onlyChild(wrapper))) ?? new Map();

/** The OIDs of the critical extensions that the caller does not handle. */
export const unhandledCritical = (
  { extensions }: { readonly extensions: Extensions },
  handled: readonly string[],
): string[] =>
  [...extensions].flatMap(([oid, { critical }]) => (critical && !handled.includes(oid) ? [oid] : []));

const readBasicConstraints = (element: Der) =>
  readSequence(element, (cursor) => ({
    ca: cursor.optional(TAG.boolean, readBoolean) ?? false,
    pathLength: cursor.optional(TAG.integer, (length) => readSmallInteger(length, 255)),
  }));

/** In the order of their bits (RFC 5280 4.2.1.3). */
const KEY_USAGES = [
  ...['digitalSignature', 'nonRepudiation', 'keyEncipherment', 'dataEncipherment', 'keyAgreement'],
  ...['keyCertSign', 'cRLSign', 'encipherOnly', 'decipherOnly'],
];

function readKeyUsage(element: Der): ReadonlySet<string> {
  const bytes = readBitString(element, 7);
  return new Set(KEY_USAGES.filter((_, bit) => (((bytes[bit >> 3] ?? 0) << (bit & 7)) & 0x80) !== 0));
}

const readExtendedKeyUsage = (element: Der): readonly string[] =>
  readSequence(element, (cursor) => [cursor.take(), ...cursor.rest()].map(readOid));

/** Where the revocation list of a root is: the one URI of its one distribution point (RFC 5280 4.2.1.13). */
export function crlDistributionPoint({ extensions }: Certificate): string {
  const value = extensions.get(EXTENSION_OID.crlDistributionPoints)?.value;
  if (value === undefined) throw malformed('the root names no distribution point for its CRL');
  const point = onlyChild(parseDer(value, TAG.sequence));
  const name = readSequence(point, (cursor) => onlyChild(cursor.take(contextTag(0, true))));
  const uri = onlyChild(expectTag(name, contextTag(0, true)));
  return Buffer.from(expectTag(uri, contextTag(6, false)).content).toString('latin1');
}

export type Name = Readonly<ReturnType<typeof readName>>;

const SHORT_NAMES: Readonly<Record<string, string>> = {
  '2.5.4.3': 'CN',
  '2.5.4.5': 'serialNumber',
  '2.5.4.6': 'C',
  '2.5.4.7': 'L',
  '2.5.4.8': 'ST',
  '2.5.4.10': 'O',
  '2.5.4.11': 'OU',
};

/**
 * The encoded name, and its attributes in order of appearance: `type` is the short name (`CN`, `O` …) or the
 * OID (RFC 5280 4.1.2.4).
 */
export function readName(element: Der) {
  const attributes = children(expectTag(element, TAG.sequence)).flatMap((rdn) => {
    const pairs = children(expectTag(rdn, TAG.set));
    if (pairs.length === 0) throw malformed('an empty relative distinguished name');
    return pairs.map((pair) => readSequence(pair, readAttribute));
  });
  return { der: element.full, attributes };
}

function readAttribute(cursor: DerCursor) {
  const oid = readOid(cursor.take());
  return { type: SHORT_NAMES[oid] ?? oid, value: readText(cursor.take()) };
}

/** Whether both names have the same encoding. Every issuer met here encodes equal names in the same way. */
export const sameName = (a: Name, b: Name): boolean => hex(a.der) === hex(b.der);

/** The one common name; undefined if there is none or more than one. */
export function commonName({ attributes }: Name): string | undefined {
  const [name, ...others] = attributes.filter(({ type }) => type === 'CN');
  return others.length === 0 ? name?.value : undefined;
}

/** The name for a person: `CN=SEV-Genoa, O=…`. */
export const nameText = ({ attributes }: Name): string =>
  attributes.map(({ type, value }) => `${type}=${value}`).join(', ');

const BLOCK = /-----BEGIN CERTIFICATE-----\r?\n([A-Za-z0-9+/=\r\n]*?)\r?\n?-----END CERTIFICATE-----/g;

/**
 * Reads the CERTIFICATE blocks of a PEM text, at least one. Only white space may stand between and around
 * them, and their base64 must be canonical.
 */
export function decodeCertificates(text: string): Uint8Array[] {
  const blocks = [...text.matchAll(BLOCK)];
  if (blocks.length === 0 || text.replace(BLOCK, '').trim() !== '')
    throw malformed('not PEM blocks of certificates and nothing else');
  return blocks.map(([, body = '']) => {
    const base64 = body.replace(/[\r\n]/g, '');
    const der = new Uint8Array(Buffer.from(base64, 'base64'));
    if (der.length === 0 || Buffer.from(der).toString('base64') !== base64)
      throw malformed('a PEM block is not base64');
    return der;
  });
}

/** The DER of a text of at most 100,000 characters that holds exactly one CERTIFICATE block. */
export function decodeOneCertificate(text: string): Uint8Array {
  // Room for the largest certificate that is read, with line breaks.
  if (text.length > 100_000) throw malformed('a certificate in PEM is too large');
  const [der, ...rest] = decodeCertificates(text);
  if (der === undefined || rest.length > 0) throw malformed('not exactly one CERTIFICATE block');
  return der;
}
