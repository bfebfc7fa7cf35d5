/** Which certificates connections to the outside trust. */
import { X509Certificate } from 'node:crypto';
import { getCACertificates } from 'node:tls';
import { PrivatemodeError } from '../errors.ts';
import { readNamed } from '../files/path-refusal.ts';
import type { Environment } from './outbound-proxy.ts';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/**
 * The trusted certificates, one PEM text each. If SSL_CERT_FILE is set and not empty, only its certificates
 * are trusted (docs/protocol/inference.md 1), else those of the system and Node. Throws config_invalid.
 */
export function loadTrustStore(env: Environment): readonly string[] {
  const path = env['SSL_CERT_FILE'];
  if (!path) return [...new Set([...getCACertificates('system'), ...getCACertificates('bundled')])];
  const pem = readNamed(`the file ${JSON.stringify(path)} of SSL_CERT_FILE`, path).toString('latin1');
  // An unreadable certificate is left out. A file without any readable certificate is a mistake.
  const certificates = (pem.match(CERTIFICATE) ?? []).filter(isCertificate);
  if (certificates.length > 0) return certificates;
  throw new PrivatemodeError('config_invalid', `SSL_CERT_FILE: ${path} holds no PEM certificate`);
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}
