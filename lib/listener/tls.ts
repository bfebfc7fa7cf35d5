/** The certificate of the listener and its key: reads both, and tells when the certificate expires. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { readNamed } from '../files/path-refusal.ts';
import { readSmallSync } from '../watch-files.ts';

export type TlsMaterial = Readonly<Record<'cert' | 'key', string>>; // PEM

/** Reads certificate and key, and checks that they match. Throws config_invalid, naming both paths. */
export function loadTls({ certPath, keyPath }: Record<'certPath' | 'keyPath', string>): TlsMaterial {
  const cert = read(certPath, '--tls-cert-path');
  const key = read(keyPath, '--tls-key-path');
  try {
    // createSecureContext would accept an empty text. A file that is being written may be empty.
    if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
      throw new Error('the key belongs to another certificate');
    createSecureContext({ cert, key });
  } catch (cause) {
    const what = `the certificate in ${certPath} and its key in ${keyPath} (in PEM, and without a passphrase)`;
    const message = `${what} cannot be used: ${(cause as Error).message}`;
    throw new PrivatemodeError('config_invalid', message, { cause });
  }
  return { cert, key };
}

const read = (path: string, flag: string): string =>
  readNamed(`the file ${JSON.stringify(path)} of ${flag}`, path, readSmallSync).toString();

/** Finds the certificate that expires first in a PEM text. The text must have been loaded before. */
export function firstToEnd(pem: string) {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [pem];
  const all = blocks.map((block) => new X509Certificate(block));
  const first = all.reduce((first, next) => (next.validToDate < first.validToDate ? next : first));
  const name = first.subject || first.subjectAltName || '';
  return { subject: name.replaceAll('\n', ', '), ends: first.validToDate };
}

/** The notice about the certificate in `path`. If more than 14 days are left, `id` is undefined. */
export function expiryOf(path: string, { subject, ends }: ReturnType<typeof firstToEnd>, clock: Clock) {
  const left = ends.getTime() - clock.now();
  const at = `${left > 0 ? 'expires' : 'expired'} on ${ends.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  const reason = `the certificate of ${subject} in ${path} ${at}`;
  if (left > clock.times.expirySoon) return { id: undefined, reason };
  return {
    id: left > 0 ? ('tls_certificate_expiry' as const) : ('tls_certificate_expired' as const),
    reason,
  };
}
