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
