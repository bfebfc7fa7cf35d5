/**
 * The secrets this deployment shares with clients, by secret id (docs/protocol/inference.md 10,
 * docs/protocol/attestation.md 12). The store forgets a secret after its lifetime, or at once on request; in
 * both cases the client sees "no secret for ID".
 */
export interface SecretStore {
  /** The 32 bytes of the secret with this id (base64); undefined if it is unknown or past its lifetime. */
  lookup(id: string): Uint8Array | undefined;
  put(id: string, secret: Uint8Array): void;
  /** Forgets every secret. */
  dropAll(): void;
  /** Ids of the unexpired secrets, oldest first. */
  ids(): string[];
}

/**
 * `lifetime` in ms. `now`: the simulator's clock in ms since 1970, so that a skewed clock expires secrets.
 */
export function createSecretStore(lifetime: number, now: () => number): SecretStore {
  const entries = new Map<string, { readonly secret: Uint8Array; readonly expiresAt: number }>();

  // Every use of the store removes what has expired, so that no timer can leak.
  const unexpired = (): typeof entries => {
    for (const [id, { expiresAt }] of entries) if (expiresAt <= now()) entries.delete(id);
    return entries;
  };

  return {
    lookup: (id) => unexpired().get(id)?.secret,
    put: (id, secret) => void unexpired().set(id, { secret, expiresAt: now() + lifetime }),
    dropAll: () => entries.clear(),
    ids: () => [...unexpired().keys()],
  };
}
