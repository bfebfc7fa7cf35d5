import type { KeyObject } from 'node:crypto';

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
}
