import type { KeyObject } from 'node:crypto';
import type { Clock } from './clock.ts';

/** One attested secret with its manifest and times. Immutable; a request attempt holds exactly one. */
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
 * Whether requests may use the epoch. It ends by whichever clock is first, and counts for nothing while the wall clock
 * stands before its attestation: that clock was set back, and would keep a secret that the service has forgotten.
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

/** The service forgets a secret one hour after the exchange (docs/protocol/inference.md 10). */
const SERVICE_KEEPS_SECRET = 3_600_000;

/**
 * For a service that keeps secrets for `secret` ms. Renewal begins after three quarters, where the reference makes
 * requests wait; a sixth of the lifetime (ten minutes of the hour) remains to get through an outage unnoticed. The last
 * twelfth (five minutes) stays unused: the service looks the secret up when a request has arrived, which for a large
 * upload is minutes after it was sealed, and the two clocks may drift apart while this machine sleeps.
 */
export function lifetimesOf(secret: number = SERVICE_KEEPS_SECRET): Lifetimes {
  return { renewAfter: secret * (3 / 4), jitter: secret / 30, usable: secret * (11 / 12) };
}
