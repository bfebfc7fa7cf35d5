import type { KeyObject } from 'node:crypto';
import type { Clock } from './clock.ts';

/**
 * Everything that has to be known before a byte may leave: which secret, shared with whom, proved when.
 * Immutable; a request attempt holds exactly one.
 */
export interface Epoch {
  readonly secretId: string;
  readonly key: KeyObject;
  /** Lower-case hex SHA-256 of the manifest the remote was verified against. */
  readonly manifestSha256: string;
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
  /** From here on the session renews it in the background. */
  readonly renewAt: number;
  /** From here on no request may use it. */
  readonly expiresAt: number;
  /** The same end on the monotonic clock (Clock.monotonic), which nobody can set back. */
  readonly expiresMonotonic: number;
}

/**
 * Whether requests may use it: it ends by whichever clock is first, and while the wall clock stands before the moment of
 * attestation. That clock was set back, and would otherwise keep a secret that the service has forgotten, and an
 * attestation as old as one likes.
 */
export function isUsable(epoch: Epoch, clock: Pick<Clock, 'now' | 'monotonic'>): boolean {
  const now = clock.now();
  return epoch.attestedAt <= now && now < epoch.expiresAt && clock.monotonic() < epoch.expiresMonotonic;
}

/** How long an epoch is good for; all in ms, counted from the beginning of its secret exchange. */
export interface Lifetimes {
  /** Renewal begins in the background. */
  readonly renewAfter: number;
  /** Up to this much earlier, at random: a fleet that was started together must not renew together. */
  readonly jitter: number;
  /** No request may begin to use it any more. */
  readonly usable: number;
}

/** The service forgets a secret one hour after the exchange (inference.md 10). */
const SERVICE_KEEPS_SECRET = 3_600_000;

/**
 * For a service that keeps secrets for `secret` ms. The reference stops using a secret after three quarters of that
 * time, and requests then wait for the next one; here renewal begins there, which leaves it a sixth of the lifetime
 * (ten minutes of the hour) to get through an outage unnoticed. The last twelfth (five minutes) is not used: the
 * service looks the secret up when a request has arrived, which for a large upload on a slow line is minutes after it
 * was sealed, and the two clocks may drift apart while this machine sleeps.
 */
export function lifetimesOf(secret: number = SERVICE_KEEPS_SECRET): Lifetimes {
  return { renewAfter: secret * (3 / 4), jitter: secret / 30, usable: secret * (11 / 12) };
}
