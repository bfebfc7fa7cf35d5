/** When certificates of ours expire, and the conditions that warn of it. */
import { X509Certificate } from 'node:crypto';
import type { ConditionId, ConditionSink } from '../observe/conditions.ts';

/** Of a text in PEM: whose certificate is the first to end, and when. */
export interface Expiry {
  readonly subject: string;
  readonly ends: Date;
}

/** Of a certificate with its chain, or of CAs, which have been loaded before, so that they can be read. */
export function firstToEnd(pem: string): Expiry {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [pem];
  const all = blocks.map((block) => {
    const { subject, subjectAltName, validToDate } = new X509Certificate(block);
    return { subject: (subject || subjectAltName || '').replaceAll('\n', ', '), ends: validToDate };
  });
  return all.reduce((first, next) => (next.ends < first.ends ? next : first));
}

const SOON_MS = 14 * 86_400_000;
/** ms between two looks. */
export const EXPIRY_INTERVAL = 3_600_000;

/** Sets or clears the condition `id` of the certificates in `path`: a warning for the last 14 days, critical once one has expired. */
export function noteExpiry(
  conditions: ConditionSink,
  id: Extract<ConditionId, 'tls_certificate_expiry' | 'client_ca_expiry'>,
  { path, subject, ends }: Expiry & { readonly path: string | undefined },
  now: number = Date.now(),
): void {
  const left = ends.getTime() - now;
  if (left > SOON_MS) {
    conditions.clear(id);
    return;
  }
  const [verb, severity] = left <= 0 ? (['expired', 'critical'] as const) : (['expires', 'warning'] as const);
  const at = `${ends.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
  conditions.set(id, `the certificate of ${subject} in ${path} ${verb} on ${at}`, {
    severity,
  });
}
