/** Findings about certificates and lists: whether they are in force, and who signed them. */
import { type Finding, finding } from './check.ts';
import { type Certificate, type Name, type Signed, sameName, verifySignedBy } from './x509.ts';

type Period = Readonly<Record<'notBefore' | 'notAfter', Date>>;

/**
 * ms. AMD signs a VCEK when it is asked for one, after the moment by which everything is judged; so what
 * begins so soon after that counts already.
 */
const GRACE = 60_000;

/**
 * Passes if `now` lies inside all of the periods, to which both their ends belong. The finding names the
 * first one, or the first that is not in force. Vendors issue nothing ahead of time, so what has not begun
 * shows that our own clock is wrong.
 */
export function inForce(now: Date, ...periods: readonly [Period, ...Period[]]): Finding {
  const early = periods.find(({ notBefore }) => notBefore.getTime() > now.getTime() + GRACE);
  const late = periods.find(({ notAfter }) => notAfter < now);
  const { notBefore, notAfter } = early ?? late ?? periods[0];
  const range = `${notBefore.toISOString()} to ${notAfter.toISOString()}`;
  if (early === undefined && late === undefined) return finding(true, range);
  const at = now.toISOString();
  const why = early ? `not valid yet at ${at}: the local clock is probably behind` : `over at ${at}`;
  return { ...finding(false, `${range}, ${why}`), detail: { clock: early ? 'early' : 'late' } };
}

export const verified = (holds: boolean): Finding =>
  finding(holds, holds ? 'valid' : 'the signature does not verify');

/** Passes if the certificate or list names this issuer and carries its signature. */
export async function issuedBy(
  signed: Signed & { readonly issuer: Name },
  issuer: Certificate,
): Promise<Finding> {
  if (!sameName(signed.issuer, issuer.subject)) return finding(false, 'another issuer');
  return verified(await verifySignedBy(signed, issuer));
}
