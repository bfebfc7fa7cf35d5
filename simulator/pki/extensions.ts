/** The standard X.509 extensions that the simulated authorities write (RFC 5280 4.2). */
import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';
import { EXTENSION_OID } from '../../lib/attestation/x509.ts';
import { contextTag } from '../../lib/crypto/der.ts';
import { bitString, boolean, element, integer, octetString, oid, sequence } from './der.ts';

export interface EncodedExtension {
  readonly oid: string;
  readonly critical: boolean;
  /** Content of the OCTET STRING. */
  readonly value: Uint8Array;
}

/** An extension whose DER value the caller has made. */
export const vendorExtension = (oid: string, value: Uint8Array, critical = false): EncodedExtension => ({
  ...{ oid, critical, value },
});

export function basicConstraints(ca: boolean, pathLength?: number): EncodedExtension {
  const parts = ca ? [boolean(true), ...(pathLength === undefined ? [] : [integer(pathLength)])] : [];
  return vendorExtension(EXTENSION_OID.basicConstraints, sequence(...parts), true);
}

const KEY_USAGE_BIT = { digitalSignature: 0, nonRepudiation: 1, keyCertSign: 5, cRLSign: 6 };

/** KeyUsage as a named bit list: trailing zero bits are not encoded (X.690 11.2.2). */
export function keyUsage(...usages: readonly (keyof typeof KEY_USAGE_BIT)[]): EncodedExtension {
  const bits = usages.map((usage) => KEY_USAGE_BIT[usage]);
  const octet = bits.reduce((sum, bit) => sum | (0x80 >> bit), 0);
  return vendorExtension(
    EXTENSION_OID.keyUsage,
    bitString(Uint8Array.of(octet), 7 - Math.max(...bits)),
    true,
  );
}

const PURPOSES = { serverAuth: '1.3.6.1.5.5.7.3.1', clientAuth: '1.3.6.1.5.5.7.3.2' };

export const extendedKeyUsage = (...purposes: readonly (keyof typeof PURPOSES)[]): EncodedExtension =>
  vendorExtension(
    EXTENSION_OID.extendedKeyUsage,
    sequence(...purposes.map((purpose) => oid(PURPOSES[purpose]))),
  );

export const publicOf = (key: KeyObject): KeyObject => (key.type === 'private' ? createPublicKey(key) : key);

/** SHA-1 over the bits of the public key (RFC 5280 4.2.1.2, method 1). */
function keyId(key: KeyObject): Uint8Array {
  const publicKey = publicOf(key);
  const bits =
    publicKey.asymmetricKeyType === 'rsa'
      ? publicKey.export({ type: 'pkcs1', format: 'der' })
      : uncompressedPoint(publicKey);
  return createHash('sha1').update(bits).digest();
}

function uncompressedPoint(key: KeyObject): Uint8Array {
  const { x = '', y = '' } = key.export({ format: 'jwk' });
  return Buffer.concat([Uint8Array.of(4), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
}

export const subjectKeyId = (key: KeyObject): EncodedExtension =>
  vendorExtension('2.5.29.14', octetString(keyId(key)));

export const authorityKeyId = (issuer: KeyObject): EncodedExtension =>
  vendorExtension(
    EXTENSION_OID.authorityKeyIdentifier,
    sequence(element(contextTag(0, false), keyId(issuer))),
  );

/** IP addresses, URIs with a scheme, and DNS names (docs/protocol/attestation.md 4.2). */
export function subjectAltName(names: readonly string[]): EncodedExtension {
  const general = names.map((name) => {
    if (isIP(name) !== 0) return element(contextTag(7, false), ipBytes(name));
    const tag = /^[a-z][a-z0-9+.-]*:\/\//i.test(name) ? 6 : 2;
    return element(contextTag(tag, false), Buffer.from(name, 'latin1'));
  });
  return vendorExtension(EXTENSION_OID.subjectAltName, sequence(...general));
}

/** The bytes of an IP address; a zone (`fe80::1%eth0`) has no place in them. */
function ipBytes(address: string): Uint8Array {
  if (isIP(address) === 4) return Uint8Array.from(address.split('.').map(Number));
  // A URL writes every form of an IPv6 address in hexadecimal groups, also one that ends in an IPv4 address.
  const groups = new URL(`http://[${address.split('%', 1)[0]}]`).hostname.slice(1, -1);
  const [head = [], tail = []] = groups.split('::').map((half) => (half === '' ? [] : half.split(':')));
  const zeros = Array<string>(8 - head.length - tail.length).fill('0');
  return Buffer.from([...head, ...zeros, ...tail].map((group) => group.padStart(4, '0')).join(''), 'hex');
}

export function crlDistributionPoint(url: string): EncodedExtension {
  const uri = element(contextTag(6, false), Buffer.from(url, 'latin1'));
  const fullName = element(contextTag(0, true), element(contextTag(0, true), uri));
  return vendorExtension(EXTENSION_OID.crlDistributionPoints, sequence(sequence(fullName)));
}

export const crlNumber = (number: number): EncodedExtension =>
  vendorExtension(EXTENSION_OID.crlNumber, integer(number));
