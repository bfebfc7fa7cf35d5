/** A revocation list as it was obtained: its limits before anything of it is parsed, and what a check says of its age. */
import type { Finding } from './check.ts';
import type { RevocationList } from './collateral.ts';
import { parseCrl } from './x509/crl.ts';
import { malformed } from './x509/der.ts';

export type ReadList = Readonly<ReturnType<typeof readRevocationList>>;

/**
 * Bytes; real lists have under 10 KB. Reading one takes time in proportion to its size, before any signature is
 * checked, so the list that whoever made the evidence put into it gets less room than one from the vendor's host.
 */
export const MAX_EMBEDDED_CRL_BYTES = 64 * 1024;
const MAX_FETCHED_CRL_BYTES = 256 * 1024;

/** Throws evidence_malformed: over `maxBytes`, or no DER revocation list. */
export function readRevocationList({ crl, stored }: RevocationList, maxBytes = MAX_FETCHED_CRL_BYTES) {
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
  const stand =
    stored && `stored ${duration(since(stored.fetchedAt))} ago, because it could not be fetched now`;
  const how = stored === undefined ? origin : `${stand} (${stored.because})`;
  const found = `${how}; number ${crl.crlNumber ?? 'not stated'}, issued ${duration(age)} ago`;
  return { outcome: 'pass', found, age };
}

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 2 * 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} days`;
}
