/** What several tables of checks find about certificates, signatures and periods of validity. */
import { constantTimeEqual } from '#crypto/digest';
import type { FailureDetail } from '../errors.ts';
import { type Finding, finding } from './check.ts';
import { type Certificate, isTimeValid, verifySignedBy } from './x509/certificate.ts';
import { type Name, sameName } from './x509/name.ts';
import type { SignedObject } from './x509/signed.ts';

type Side = FailureDetail['clock'];

/** On which side of a period `now` lies; undefined: inside. */
export function sideOf(from: Date, to: Date | undefined, now: Date): Side {
  if (from > now) return 'early';
  return to !== undefined && to < now ? 'late' : undefined;
}

/** Vendors issue nothing ahead of time, so the clock that is wrong is most likely ours. */
export const NOT_YET = 'the local clock is probably behind';

/** `FROM to TO`; where `now` lies outside, also the moment that was compared, and before it the probable cause. */
export function period(from: Date, to: Date | undefined, now: Date): string {
  const range = `${from.toISOString()} to ${to?.toISOString() ?? 'no date'}`;
  const side = sideOf(from, to, now);
  if (side === 'early') return `${range}, not valid yet at ${now.toISOString()}: ${NOT_YET}`;
  return side === 'late' ? `${range}, over at ${now.toISOString()}` : range;
}

/** The detail of a failure by these sides: what is not valid yet counts before what has expired. Undefined where `now` lies inside of all. */
export function clockDetail(...sides: readonly Side[]): FailureDetail | undefined {
  const clock = sides.includes('early') ? 'early' : sides.find((side) => side !== undefined);
  return clock && { clock };
}

/** Gives the period, and where `now` lies outside of it, on which side. */
export function inForce(holds: boolean, from: Date, to: Date | undefined, now: Date): Finding {
  return { ...finding(holds, period(from, to, now)), detail: clockDetail(sideOf(from, to, now)) };
}

/** Passes when all certificates are valid at `now`; gives the period of the first one that is not, else of `main`. */
export function allValid(certificates: readonly Certificate[], main: Certificate, now: Date): Finding {
  const invalid = certificates.find((each) => !isTimeValid(each, now));
  const { notBefore, notAfter } = invalid ?? main;
  return inForce(invalid === undefined, notBefore, notAfter, now);
}

export const verified = (holds: boolean): Finding =>
  finding(holds, holds ? 'valid' : 'the signature does not verify');

/** Passes when the certificate or list names this issuer and carries its signature. */
export async function issuedBy(
  signed: SignedObject & { readonly issuer: Name },
  issuer: Certificate,
): Promise<Finding> {
  if (!sameName(signed.issuer, issuer.subject)) return finding(false, 'another issuer');
  return verified(await verifySignedBy(signed, issuer));
}

/** Passes for one of the byte strings that the manifest, the nonce or the hardware allow; without any, nothing passes. */
export function oneOf(found: Uint8Array | undefined, allowed: readonly Uint8Array[]): Finding {
  const holds = found !== undefined && allowed.some((value) => constantTimeEqual(value, found));
  return finding(holds, hex(found ?? new Uint8Array()), allowed.map(hex).join(' or '));
}

export const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
