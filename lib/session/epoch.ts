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
