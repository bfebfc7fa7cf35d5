/** What may be told of an epoch: the digests it goes by, and its times; no key. */
export interface EpochFacts {
  /** Standard base64 of SHA-256 of the public key. */
  readonly secretId: string;
  /** Lower-case hex SHA-256 of the manifest the remote was verified against. */
  readonly manifestSha256: string;
  /** Lower-case hex SHA-256 of the verdict on the remote, as `verdictText` writes it. */
  readonly verdictSha256: string;
  /** Wall clock, ms since 1970. */
  readonly attestedAt: number;
  /** From here on the session renews it in the background. */
  readonly renewAt: number;
  /** From here on no request may use it. */
  readonly expiresAt: number;
}

/** These facts, of an epoch that holds more. */
export function epochFacts(epoch: EpochFacts): EpochFacts {
  const { secretId, manifestSha256, verdictSha256, attestedAt, renewAt, expiresAt } = epoch;
  return { secretId, manifestSha256, verdictSha256, attestedAt, renewAt, expiresAt };
}
