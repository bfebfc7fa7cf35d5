/**
 * The secrets this deployment shares with clients, by secret id (docs/protocol/inference.md 10). The store
 * forgets one after its lifetime, or all at once; then the client sees "no secret for ID".
 */
export type SecretStore = ReturnType<typeof createSecretStore>;

/** `lifetime` in ms. `now`: the clock in ms since 1970, which may be skewed. */
export function createSecretStore(lifetime: number, now: () => number) {
  const entries = new Map<string, { readonly secret: Uint8Array; readonly expiresAt: number }>();

  // Every use of the store removes what has expired, so that no timer can leak.
  const unexpired = (): typeof entries => {
    for (const [id, { expiresAt }] of entries) if (expiresAt <= now()) entries.delete(id);
    return entries;
  };

  return {
    /** The 32 bytes of the secret with this id (base64); undefined if it is unknown or past its lifetime. */
    lookup: (id: string): Uint8Array | undefined => unexpired().get(id)?.secret,
    put: (id: string, secret: Uint8Array): void =>
      void unexpired().set(id, { secret, expiresAt: now() + lifetime }),
    /** Forgets every secret. */
    dropAll: (): void => entries.clear(),
    /** Ids of the unexpired secrets, oldest first. */
    ids: (): string[] => [...unexpired().keys()],
  };
}
