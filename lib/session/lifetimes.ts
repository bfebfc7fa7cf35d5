/** How long an attested secret is used, and when it is renewed. */
import type { Moment } from '../clock.ts';

/** For how long an epoch may be used, and when it is renewed, as `lifetimesOf` computes it. */
export type Lifetimes = Readonly<ReturnType<typeof lifetimesOf>>;

/** The service forgets a secret one hour after the exchange (docs/protocol/inference.md 10). */
const SERVICE_KEEPS_SECRET = 3_600_000;

/**
 * The times of an epoch, in ms from the beginning of the secret exchange, for a service that keeps secrets
 * for `secret` ms. Renewal begins after three quarters of that, where the reference makes requests wait. It
 * begins up to `jitter` earlier, at random: proxies that were started together must not renew together. A
 * sixth of the lifetime (ten minutes of the hour) remains to get through an outage unnoticed. The last
 * twelfth (five minutes) stays unused. One reason is that the service looks up the secret when a request has
 * arrived, which for a large upload is minutes after the proxy sealed it. The other is that the two clocks
 * may drift apart while this machine sleeps.
 */
export function lifetimesOf(secret: number = SERVICE_KEEPS_SECRET) {
  return { renewAfter: secret * (3 / 4), jitter: secret / 30, usable: secret * (11 / 12) };
}

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
