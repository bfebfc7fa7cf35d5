/** How long an attested secret is used, and when it is renewed. */
import type { Clock } from './clock.ts';

/** How long an epoch is good for, as `lifetimesOf` says. */
export type Lifetimes = Readonly<ReturnType<typeof lifetimesOf>>;

/** The service forgets a secret one hour after the exchange (docs/protocol/inference.md 10). */
const SERVICE_KEEPS_SECRET = 3_600_000;

/**
 * For a service that keeps secrets for `secret` ms; in ms from the beginning of the exchange. Renewal begins after three
 * quarters, where the reference makes requests wait, and up to `jitter` earlier, at random: a fleet that was started
 * together must not renew together. A sixth of the lifetime (ten minutes of the hour) remains to get through an outage
 * unnoticed. The last twelfth (five minutes) stays unused: the service looks the secret up when a request has arrived, which
 * for a large upload is minutes after it was sealed, and the two clocks may drift apart while this machine sleeps.
 */
export function lifetimesOf(secret: number = SERVICE_KEEPS_SECRET) {
  return { renewAfter: secret * (3 / 4), jitter: secret / 30, usable: secret * (11 / 12) };
}

/** What is known of one secret: when it was attested, and when its use ends. */
export interface Term {
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
  /** From here on no request may use it. */
  readonly expiresAt: number;
  /** The same end on the monotonic clock, which nobody can set back. */
  readonly expiresMonotonic: number;
}

/**
 * Whether requests may use the secret. It ends by whichever clock is first, and counts for nothing while the wall clock
 * stands before its attestation: that clock was set back, and would keep a secret that the service has forgotten.
 */
export function isUsable(term: Term, clock: Pick<Clock, 'now' | 'monotonic'>): boolean {
  const now = clock.now();
  return term.attestedAt <= now && now < term.expiresAt && clock.monotonic() < term.expiresMonotonic;
}
