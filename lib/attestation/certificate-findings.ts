/**
 * Findings about certificates and lists: whether they are valid now, and who signed them. If something is not
 * valid yet, the finding says that our clock is probably behind.
 */
import type { FailureDetail } from '../errors.ts';
import { type Finding, finding } from './check.ts';
import { type Certificate, isTimeValid, type Name, type Signed, sameName, verifySignedBy } from './x509.ts';

type Side = FailureDetail['clock'];

/**
 * `early` if `now` lies before the period, `late` if after it, undefined if inside. Without `to`, the period
 * never ends.
 */
export function sideOf(from: Date, to: Date | undefined, now: Date): Side {
  if (from > now) return 'early';
  return to !== undefined && to < now ? 'late' : undefined;
}

/**
 * The probable cause if something is not valid yet: vendors issue nothing ahead of time, so our own clock is
 * most likely wrong.
 */
export const NOT_YET = 'the local clock is probably behind';

/**
 * The text `FROM to TO`. If `now` lies outside, the text names `now` too; if `now` lies before FROM, also the
 * probable cause.
 */
export function period(from: Date, to: Date | undefined, now: Date): string {
  const range = `${from.toISOString()} to ${to?.toISOString() ?? 'no date'}`;
  const side = sideOf(from, to, now);
  if (side === 'early') return `${range}, not valid yet at ${now.toISOString()}: ${NOT_YET}`;
  return side === 'late' ? `${range}, over at ${now.toISOString()}` : range;
}

/**
 * The detail of a failure, from the sides of several periods: `early` if any period has not begun, else
 * `late` if any has ended. Undefined if `now` lies inside all of them.
 */
export function clockDetail(...sides: readonly Side[]): FailureDetail | undefined {
  const clock = sides.includes('early') ? 'early' : sides.find((side) => side !== undefined);
  return clock && { clock };
}

/** Passes if `holds`. The finding names the period; if `now` lies outside, its detail says on which side. */
export function inForce(holds: boolean, from: Date, to: Date | undefined, now: Date): Finding {
  return { ...finding(holds, period(from, to, now)), detail: clockDetail(sideOf(from, to, now)) };
}

/**
 * Passes if all certificates are valid at `now`. The finding names the period of the first invalid one, else
 * that of `main`.
 */
export function allValid(certificates: readonly Certificate[], main: Certificate, now: Date): Finding {
  const invalid = certificates.find((each) => !isTimeValid(each, now));
  const { notBefore, notAfter } = invalid ?? main;
  return inForce(invalid === undefined, notBefore, notAfter, now);
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
