/** Which certificate authorities outbound TLS connections trust. */
import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { getCACertificates } from 'node:tls';
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable } from '../files/path-refusal.ts';

export type Environment = Readonly<Record<string, string | undefined>>;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/**
 * PEM, one certificate each: exactly those of the file SSL_CERT_FILE, if that is set and not empty
 * (docs/protocol/inference.md 1); else the stores of the system and of Node. Throws config_invalid.
 */
export function loadTrustStore(env: Environment): readonly string[] {
  const path = env['SSL_CERT_FILE'];
  if (!path) return [...new Set([...getCACertificates('system'), ...getCACertificates('bundled')])];
  try {
    // An entry that cannot be read is left out; a bundle of nothing but such entries is a mistake.
    const certificates = (readFileSync(path, 'latin1').match(CERTIFICATE) ?? []).filter(isCertificate);
    if (certificates.length > 0) return certificates;
  } catch (cause) {
    throw fileUnreadable(`the file ${JSON.stringify(path)} of SSL_CERT_FILE`, path, cause);
  }
  throw new PrivatemodeError('config_invalid', `SSL_CERT_FILE: ${path} holds no PEM certificate`);
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}
