/**
 * The secrets this deployment shares with clients, by secret id (docs/protocol/inference.md 10,
 * docs/protocol/attestation.md 12). The store forgets a secret after its lifetime, or at once on request; in
 * both cases the client sees "no secret for ID".
 */
export interface SecretStore {
  /**
   * The 32 bytes of the secret with this id (base64); undefined if it is unknown, dropped or past its
   * lifetime.
   */
  lookup(id: string): Uint8Array | undefined;
  /** Forgets one secret; returns whether it was there. */
  drop(id: string): boolean;
}

/** The store as the trust side sees it; only that side may add and drop secrets. */
export interface MutableSecretStore extends SecretStore {
  put(id: string, secret: Uint8Array): void;
  /** Forgets every secret; returns how many there were. */
  dropAll(): number;
  /** Ids of the unexpired secrets, oldest first. */
  ids(): string[];
}

/**
 * `lifetime` in ms. `now`: the simulator's own clock in ms since 1970, so that a skewed clock expires
 * secrets.
 */
export function createSecretStore(lifetime: number, now: () => number): MutableSecretStore {
  const entries = new Map<string, { readonly secret: Uint8Array; readonly expiresAt: number }>();

  // Reads of the store check the expiry, so that no timer can leak.
  const sweep = (): void => {
    for (const [id, { expiresAt }] of entries) if (expiresAt <= now()) entries.delete(id);
  };

  return {
    put(id, secret) {
      sweep();
      entries.set(id, { secret, expiresAt: now() + lifetime });
    },
    lookup(id) {
      const entry = entries.get(id);
      return entry !== undefined && entry.expiresAt > now() ? entry.secret : undefined;
    },
    drop: (id) => entries.delete(id),
    dropAll() {
      const count = entries.size;
      entries.clear();
      return count;
    },
    ids() {
      sweep();
      return [...entries.keys()];
    },
  };
}
