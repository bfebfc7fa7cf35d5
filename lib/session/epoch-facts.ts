/**
 * The facts of an epoch that anybody may see: the digests that name it, and its times. No key is among them.
 */
export interface EpochFacts {
  /** Standard base64 of SHA-256 of the public key. */
  readonly secretId: string;
  /** Lower-case hex SHA-256 of the manifest the remote was verified against. */
  readonly manifestSha256: string;
  /** Lower-case hex SHA-256 of the verdict on the remote, as `verdictText` writes it. */
  readonly verdictSha256: string;
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
  /** From this time on the session renews the epoch in the background. */
  readonly renewAt: number;
  /** From this time on no request may use the epoch. */
  readonly expiresAt: number;
}

/** Copies these facts from an epoch, which holds more. */
export function epochFacts(epoch: EpochFacts): EpochFacts {
  const { secretId, manifestSha256, verdictSha256, attestedAt, renewAt, expiresAt } = epoch;
  return { secretId, manifestSha256, verdictSha256, attestedAt, renewAt, expiresAt };
}
