/** For how long an attested secret may be used. */
import type { Moment } from '../clock.ts';

/** When one secret was attested, and when its use ends. */
export interface Term {
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
  /** Wall clock, ms since 1970. From this time on no request may use the secret. */
  readonly expiresAt: number;
  /** The same end on the monotonic clock, which nobody can set back. */
  readonly expiresMonotonic: number;
}

/**
 * Whether requests may use the secret. Its use ends when the first of the two clocks reaches the end. It is
 * not usable either while the wall clock stands before the attestation: then that clock was set back, and
 * would keep a secret that the service has forgotten.
 */
export const isUsable = (term: Term, at: Moment): boolean => term.attestedAt <= at.now && livesAt(term, at);

/**
 * Whether the secret has not expired by either clock. Unlike isUsable, it also holds after the wall clock was
 * set back.
 */
export const livesAt = ({ expiresAt, expiresMonotonic }: Term, { now, monotonic }: Moment): boolean =>
  now < expiresAt && monotonic < expiresMonotonic;

export type SecretState = 'none' | 'good' | 'suspended' | 'expired';

/**
 * What a secret is worth at a moment. `suspended`: the service denied it, and the renewal after that failed.
 */
export function secretAt(
  secret: (Term & { readonly suspended: boolean }) | undefined,
  at: Moment,
): SecretState {
  if (secret === undefined) return 'none';
  if (!isUsable(secret, at)) return 'expired';
  return secret.suspended ? 'suspended' : 'good';
}
