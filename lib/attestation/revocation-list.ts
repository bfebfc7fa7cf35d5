/** A revocation list as it was obtained: read within a limit, and with its age for the verdict. */
import type { Finding } from './check.ts';
import type { RevocationList } from './collateral.ts';
import { type Crl, parseCrl } from './x509/crl.ts';
import { malformed } from './x509/der.ts';

export interface ReadList {
  readonly crl: Crl;
  readonly stored: RevocationList['stored'];
}

/**
 * Bytes; real lists have under 10 KB. Reading one takes time in proportion to its size, before any signature is
 * checked, so the list that whoever made the evidence put into it gets less room than one from the vendor's host.
 */
export const MAX_EMBEDDED_CRL_BYTES = 64 * 1024;
const MAX_FETCHED_CRL_BYTES = 256 * 1024;

/** Throws evidence_malformed: over `maxBytes`, or no DER revocation list. */
export function readRevocationList(
  { crl, stored }: RevocationList,
  maxBytes: number = MAX_FETCHED_CRL_BYTES,
): ReadList {
  if (crl.length > maxBytes) throw malformed('the CRL is too large');
  return { crl: parseCrl(crl), stored };
}

/**
 * Passes, and says how old the list is (`age`: seconds since its issuer signed it) and, for a stored one, since when and
 * why. Whether that is too old is for the list's own dates to say.
 */
export function obtained({ crl, stored }: ReadList, origin: string, now: Date): Finding {
  const since = (moment: number): number => Math.max(0, Math.floor((now.getTime() - moment) / 1000));
  const age = since(crl.thisUpdate.getTime());
  const how =
    stored === undefined
      ? origin
      : `stored ${duration(since(stored.fetchedAt))} ago, because it could not be fetched now (${stored.because})`;
  return {
    outcome: 'pass',
    found: `${how}; number ${crl.crlNumber ?? 'not stated'}, issued ${duration(age)} ago`,
    age,
  };
}

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 2 * 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} days`;
}
