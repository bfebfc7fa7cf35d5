/** The ordinary TLS certificate of the simulator's port. It carries no trust (docs/protocol/attestation.md 1). */
import { generateKeyPairSync } from 'node:crypto';
import type { HardwareKeys } from '../hardware.ts';
import { issueCertificate, type Name, toPem } from './certificate.ts';
import {
  authorityKeyId,
  basicConstraints,
  extendedKeyUsage,
  keyUsage,
  subjectAltName,
  subjectKeyId,
} from './extensions.ts';

const CA_NAME: Name = [['CN', 'privatemode simulator TLS CA']];
const DAY = 86_400_000;

/** The CA that clients put into SSL_CERT_FILE, DER. */
export function issueTlsCa(keys: HardwareKeys): Uint8Array {
  return issueCertificate({
    issuer: { name: CA_NAME, key: keys.tlsCa },
    subject: CA_NAME,
    key: keys.tlsCa,
    notBefore: new Date(Date.now() - DAY),
    notAfter: new Date(Date.now() + 3650 * DAY),
    extensions: [basicConstraints(true, 0), keyUsage('keyCertSign', 'cRLSign'), subjectKeyId(keys.tlsCa)],
  });
}

/** A fresh server key and its certificate for these DNS names and IP addresses, PEM. */
export function issueServerCertificate(
  keys: HardwareKeys,
  names: readonly string[],
): { readonly key: string; readonly cert: string } {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const certificate = issueCertificate({
    issuer: { name: CA_NAME, key: keys.tlsCa },
    subject: [['CN', names[0] ?? 'localhost']],
    key: privateKey,
    notBefore: new Date(Date.now() - DAY),
    notAfter: new Date(Date.now() + 365 * DAY),
    extensions: [
      basicConstraints(false),
      keyUsage('digitalSignature'),
      extendedKeyUsage('serverAuth'),
      authorityKeyId(keys.tlsCa),
      subjectAltName(names),
    ],
  });
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: toPem(certificate),
  };
}
