/** When the certificates and CAs of the listener expire, and the conditions that warn of it. */
import { X509Certificate } from 'node:crypto';
import type { Clock } from '../clock.ts';
import { CERTIFICATES } from './tls.ts';

type ExpiryId = 'tls_certificate_expiry' | 'client_ca_expiry';

interface Expiry {
  readonly subject: string;
  readonly ends: Date;
}

/** Finds the certificate that expires first in a PEM text that has been loaded before. */
export function firstToEnd(pem: string): Expiry {
  const all = (pem.match(CERTIFICATES) ?? [pem]).map((block) => new X509Certificate(block));
  const first = all.reduce((first, next) => (next.validToDate < first.validToDate ? next : first));
  const name = first.subject || first.subjectAltName || '';
  return { subject: name.replaceAll('\n', ', '), ends: first.validToDate };
}

/** Sets or clears the condition `id`: a warning for the last 14 days, critical once `ends` is over. */
export function noteExpiry(
  conditions: {
    set(id: ExpiryId, message: string, options: { readonly severity: 'warning' | 'critical' }): void;
    clear(id: ExpiryId): void;
  },
  id: ExpiryId,
  { path, subject, ends }: Expiry & { readonly path: string | undefined },
  { now, times }: Pick<Clock, 'now' | 'times'>,
): void {
  const left = ends.getTime() - now();
  const at = `${ends.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  const of = `the certificate of ${subject} in ${path}`;
  if (left > times.expirySoon) conditions.clear(id);
  else if (left > 0) conditions.set(id, `${of} expires on ${at}`, { severity: 'warning' });
  else conditions.set(id, `${of} expired on ${at}`, { severity: 'critical' });
}
