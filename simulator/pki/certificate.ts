/** Issues X.509 v3 certificates and v2 revocation lists (RFC 5280 4.1, 5.1). */
import { constants, type KeyObject, randomBytes, sign } from 'node:crypto';
import { contextTag } from '../../lib/crypto/der.ts';
import {
  bitString,
  boolean,
  element,
  integer,
  nothing,
  octetString,
  oid,
  printableString,
  sequence,
  set,
  time,
  utf8String,
} from './der.ts';
import { authorityKeyId, crlNumber, type EncodedExtension, publicOf } from './extensions.ts';

/** A distinguished name: attribute and value, one RDN each, in encoding order. */
export type Name = readonly (readonly [keyof typeof ATTRIBUTES, string])[];

const ATTRIBUTES = {
  C: '2.5.4.6',
  ST: '2.5.4.8',
  L: '2.5.4.7',
  O: '2.5.4.10',
  OU: '2.5.4.11',
  CN: '2.5.4.3',
};

/** The signer: a private key, and the subject of its certificate. */
export interface Issuer {
  readonly name: Name;
  readonly key: KeyObject;
}

export interface CertificateRequest {
  readonly issuer: Issuer;
  readonly subject: Name;
  /** The subject's key, public or private. */
  readonly key: KeyObject;
  /** Default: random, 16 bytes. */
  readonly serial?: bigint;
  readonly notBefore: Date;
  readonly notAfter: Date;
  readonly extensions: readonly EncodedExtension[];
}

/** The DER of a certificate. The signature algorithm follows from the issuer's key. */
export function issueCertificate(request: CertificateRequest): Uint8Array {
  const { issuer, subject, key, notBefore, notAfter, extensions } = request;
  const serial = request.serial ?? BigInt(`0x40${randomBytes(15).toString('hex')}`);
  const algorithm = signatureAlgorithm(issuer.key);
  return signed(
    issuer.key,
    sequence(
      element(contextTag(0, true), integer(2)),
      integer(serial),
      algorithm.identifier,
      encodeName(issuer.name),
      sequence(time(notBefore), time(notAfter)),
      encodeName(subject),
      publicOf(key).export({ type: 'spki', format: 'der' }),
      element(contextTag(3, true), sequence(...extensions.map(encodeExtension))),
    ),
  );
}

export interface CrlRequest {
  readonly issuer: Issuer;
  readonly number: number;
  readonly thisUpdate: Date;
  readonly nextUpdate: Date;
  readonly revoked: readonly { readonly serial: bigint; readonly date: Date }[];
}

/** The DER of a certificate revocation list. */
export function issueCrl({ issuer, number, thisUpdate, nextUpdate, revoked }: CrlRequest): Uint8Array {
  const extensions = [authorityKeyId(issuer.key), crlNumber(number)];
  const entries = revoked.map(({ serial, date }) => sequence(integer(serial), time(date)));
  return signed(
    issuer.key,
    sequence(
      integer(1),
      signatureAlgorithm(issuer.key).identifier,
      encodeName(issuer.name),
      time(thisUpdate),
      time(nextUpdate),
      // An empty list of revoked certificates is left out altogether (RFC 5280 5.1.2.6).
      ...(entries.length === 0 ? [] : [sequence(...entries)]),
      element(contextTag(0, true), sequence(...extensions.map(encodeExtension))),
    ),
  );
}

const DAY = 86_400_000;

/** The DER of a revocation list of yesterday that is current for so many days. */
export function currentCrl(
  issuer: Issuer,
  number: number,
  days: number,
  serials: readonly bigint[],
): Uint8Array {
  const thisUpdate = new Date(Date.now() - DAY);
  const nextUpdate = new Date(Date.now() + days * DAY);
  const revoked = serials.map((serial) => ({ serial, date: thisUpdate }));
  return issueCrl({ issuer, number, thisUpdate, nextUpdate, revoked });
}

export function toPem(der: Uint8Array, label = 'CERTIFICATE'): string {
  const lines = Buffer.from(der)
    .toString('base64')
    .replace(/.{1,64}/g, '$&\n');
  return `-----BEGIN ${label}-----\n${lines}-----END ${label}-----\n`;
}

function signed(key: KeyObject, tbs: Uint8Array): Uint8Array {
  const algorithm = signatureAlgorithm(key);
  return sequence(tbs, algorithm.identifier, bitString(algorithm.sign(tbs)));
}

const SHA384 = '2.16.840.1.101.3.4.2.2';
const PSS_SALT_BYTES = 48;

/** RSASSA-PSS with SHA-384 and salt 48, as AMD signs (docs/protocol/attestation.md 7; RFC 4055 3.1). */
const RSA_PSS_SHA384 = sequence(
  oid('1.2.840.113549.1.1.10'),
  sequence(
    element(contextTag(0, true), sequence(oid(SHA384), nothing())),
    element(contextTag(1, true), sequence(oid('1.2.840.113549.1.1.8'), sequence(oid(SHA384), nothing()))),
    element(contextTag(2, true), integer(PSS_SALT_BYTES)),
  ),
);

/** ecdsa-with-SHA256 and -SHA384 by curve (RFC 5758 3.2). */
const ECDSA: Readonly<Record<string, { readonly hash: string; readonly oid: string }>> = {
  prime256v1: { hash: 'sha256', oid: '1.2.840.10045.4.3.2' },
  secp384r1: { hash: 'sha384', oid: '1.2.840.10045.4.3.3' },
};

function signatureAlgorithm(key: KeyObject): { identifier: Uint8Array; sign: (data: Uint8Array) => Buffer } {
  if (key.asymmetricKeyType === 'rsa') {
    const options = { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: PSS_SALT_BYTES };
    return { identifier: RSA_PSS_SHA384, sign: (data) => sign('sha384', data, options) };
  }
  const row = ECDSA[key.asymmetricKeyDetails?.namedCurve ?? ''];
  if (row === undefined)
    throw new TypeError(`no signature algorithm for a key of type ${key.asymmetricKeyType}`);
  return { identifier: sequence(oid(row.oid)), sign: (data) => sign(row.hash, data, key) };
}

function encodeName(name: Name): Uint8Array {
  const rdns = name.map(([attribute, value]) =>
    set(sequence(oid(ATTRIBUTES[attribute]), attribute === 'C' ? printableString(value) : utf8String(value))),
  );
  return sequence(...rdns);
}

const encodeExtension = ({ oid: id, critical, value }: EncodedExtension): Uint8Array =>
  sequence(oid(id), ...(critical ? [boolean(true)] : []), octetString(value));
