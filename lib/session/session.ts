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

export interface Session {
  /** The unexpired epoch, or undefined. */
  current(): Epoch | undefined;
  /**
   * Waits for an unexpired epoch. `offeredKey` is the bearer token of the request, used for attestation only
   * where no key is configured. Throws not_ready after `timeoutMs`, api_key_missing, api_key_rejected, or the
   * last permanent cause.
   */
  acquire(options: {
    offeredKey?: string | undefined;
    timeoutMs: number;
    signal?: AbortSignal;
  }): Promise<Epoch>;
  /** After "no secret for ID": replaces the epoch with that secret id; bounded and single-flight (design decision 14). */
  renewAfterRejection(secretId: string): Promise<Epoch>;
  state(): 'ready' | 'awaiting-key' | 'starting' | 'failing';
  lastError(): Error | undefined;
  close(): void;
}
