/**
 * The secrets this deployment shares with clients, by secret id (docs/protocol/inference.md 10,
 * docs/protocol/attestation.md 12). The remote forgets a secret after its lifetime, or at once when told to:
 * both make the client see "no secret for ID".
 */
export interface SecretStore {
  /** The 32 secret bytes for a secret id (base64), unless it is unknown, dropped or past its lifetime. */
  lookup(id: string): Uint8Array | undefined;
  /** Forgets one secret; tells whether it was there. */
  drop(id: string): boolean;
}

/** What only the trust side of the simulator may do with the store. */
export interface MutableSecretStore extends SecretStore {
  put(id: string, secret: Uint8Array): void;
  /** Forgets every secret; returns how many there were. */
  dropAll(): number;
  /** Ids of the unexpired secrets, oldest first. */
  ids(): string[];
}

/**
 * `lifetime` in ms; `now` in ms since 1970 (the simulator's own clock, so that a skewed one expires secrets).
 */
export function createSecretStore(lifetime: number, now: () => number): MutableSecretStore {
  const entries = new Map<string, { readonly secret: Uint8Array; readonly expiresAt: number }>();

  // Expiry is looked at where the store is read: no timer to leak.
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
