/** When the certificates and CAs of the listener expire, and the conditions that warn of it. */
import { X509Certificate } from 'node:crypto';
import type { Clock } from '../clock.ts';
import type { ConditionId, ConditionSink } from '../observe/conditions.ts';

/** The certificate of a PEM text that expires first: its subject and its end. */
export interface Expiry {
  readonly subject: string;
  readonly ends: Date;
}

/**
 * Finds the certificate that expires first. `pem`: a certificate with its chain, or CAs. The caller has
 * loaded it before, so each certificate in it can be read.
 */
export function firstToEnd(pem: string): Expiry {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [pem];
  const all = blocks.map((block) => {
    const { subject, subjectAltName, validToDate } = new X509Certificate(block);
    return { subject: (subject || subjectAltName || '').replaceAll('\n', ', '), ends: validToDate };
  });
  return all.reduce((first, next) => (next.ends < first.ends ? next : first));
}

/**
 * Sets or clears the condition `id` of the certificates in `path`: a warning for the last 14 days, critical
 * once one has expired.
 */
export function noteExpiry(
  conditions: ConditionSink,
  id: Extract<ConditionId, 'tls_certificate_expiry' | 'client_ca_expiry'>,
  { path, subject, ends }: Expiry & { readonly path: string | undefined },
  { now, times }: Pick<Clock, 'now' | 'times'>,
): void {
  const left = ends.getTime() - now();
  if (left > times.expirySoon) {
    conditions.clear(id);
    return;
  }
  const [verb, severity] = left <= 0 ? (['expired', 'critical'] as const) : (['expires', 'warning'] as const);
  const at = `${ends.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  conditions.set(id, `the certificate of ${subject} in ${path} ${verb} on ${at}`, {
    severity,
  });
}
