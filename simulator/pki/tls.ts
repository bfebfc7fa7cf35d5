/** The simulator's TLS certificate. Trust does not depend on it (docs/protocol/attestation.md 1). */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { issueCertificate, toPem } from './certificate.ts';
import {
  authorityKeyId,
  basicConstraints,
  extendedKeyUsage,
  keyUsage,
  subjectAltName,
  subjectKeyId,
} from './extensions.ts';

const CA_NAME = 'privatemode simulator TLS CA';
const DAY = 86_400_000;

/** A CA that clients put into SSL_CERT_FILE, DER. */
export function issueTlsCa({ tlsCa: key }: { readonly tlsCa: KeyObject }, commonName = CA_NAME): Uint8Array {
  return issueCertificate({
    issuer: { name: [['CN', commonName]], key },
    subject: [['CN', commonName]],
    key,
    notBefore: new Date(Date.now() - 2 * DAY),
    notAfter: new Date(Date.now() + 3650 * DAY),
    extensions: [basicConstraints(true, 0), keyUsage('keyCertSign', 'cRLSign'), subjectKeyId(key)],
  });
}

/** A server's private key and certificate, PEM. */
export interface ServerCertificate {
  readonly key: string;
  readonly cert: string;
}

/** A fresh server key and its certificate for these DNS names and IP addresses. */
export function issueServerCertificate(
  { tlsCa }: { readonly tlsCa: KeyObject },
  names: readonly string[],
  { commonName = CA_NAME, notAfter = new Date(Date.now() + 365 * DAY) } = {},
): ServerCertificate {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate = issueCertificate({
    issuer: { name: [['CN', commonName]], key: tlsCa },
    subject: [['CN', names[0] ?? 'localhost']],
    key: privateKey,
    notBefore: new Date(Date.now() - 2 * DAY),
    notAfter,
    extensions: [
      ...[basicConstraints(false), keyUsage('digitalSignature'), extendedKeyUsage('serverAuth')],
      ...[authorityKeyId(tlsCa), subjectAltName(names)],
    ],
  });
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  return { key, cert: toPem(certificate) };
}
