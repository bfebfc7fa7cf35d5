/** Checks whether certificates and certificate revocation lists are in force, and who signed them. */
import { type Finding, finding } from './check.ts';
import { type Certificate, type Name, type Signed, sameName, verifySignedBy } from './x509.ts';

type Period = Readonly<Record<'notBefore' | 'notAfter', Date>>;

/**
 * A tolerance in ms for the start of a validity period. AMD signs a VCEK when the VCEK is requested, which is
 * after the time `now` by which all dates are judged.
 */
const GRACE = 60_000;

/**
 * Passes if `now` lies within all periods. The first and the last moment belong to a period. The finding
 * names the first period that is not in force. If all are in force, the finding names the first period. A
 * period that has not begun shows that the local clock is behind, because vendors issue nothing in advance.
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

/** Passes if the certificate or CRL names `issuer` as its issuer and is signed with the issuer's key. */
export async function issuedBy(
  signed: Signed & { readonly issuer: Name },
  issuer: Certificate,
): Promise<Finding> {
  if (!sameName(signed.issuer, issuer.subject)) return finding(false, 'another issuer');
  return verified(await verifySignedBy(signed, issuer));
}
