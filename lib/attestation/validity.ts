/** Findings about certificates and lists: whether they are in force, and who signed them. */
import { type Finding, finding } from './check.ts';
import { type Certificate, type Name, type Signed, sameName, verifySignedBy } from './x509.ts';

/** Without `notAfter`, the period never ends. */
interface Period {
  readonly notBefore: Date;
  readonly notAfter: Date | undefined;
}

/** Vendors issue nothing ahead of time, so what is not valid yet shows that our own clock is wrong. */
export const NOT_YET = 'the local clock is probably behind';

/**
 * ms. AMD signs a VCEK when it is asked for one, after the moment by which everything is judged; so what
 * begins so soon after that counts already.
 */
const GRACE = 60_000;

/** Whether the period has not begun at `now`, is over, or neither. Both its ends belong to it. */
function sideOf({ notBefore, notAfter }: Period, now: Date): 'early' | 'late' | undefined {
  if (notBefore.getTime() > now.getTime() + GRACE) return 'early';
  return notAfter !== undefined && notAfter < now ? 'late' : undefined;
}

/**
 * Passes if `now` lies inside all of the periods. The finding names the first one, or the first that is not
 * in force; if one has not begun, the probable cause.
 */
export function inForce(now: Date, ...periods: readonly [Period, ...Period[]]): Finding {
  const early = periods.find((each) => sideOf(each, now) === 'early');
  const shown = early ?? periods.find((each) => sideOf(each, now) === 'late') ?? periods[0];
  const range = `${shown.notBefore.toISOString()} to ${shown.notAfter?.toISOString() ?? 'no date'}`;
  const clock = sideOf(shown, now);
  if (clock === undefined) return finding(true, range);
  const at = now.toISOString();
  const why = clock === 'early' ? `not valid yet at ${at}: ${NOT_YET}` : `over at ${at}`;
  return { ...finding(false, `${range}, ${why}`), detail: { clock } };
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
