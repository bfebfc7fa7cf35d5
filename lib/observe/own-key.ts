/**
 * Whether the service still accepts the API keys of the operator, judged by its responses to requests with
 * them: the key of --api-key, and the keys of entries of the clients file.
 */
import type { NoticeSink } from './notices.ts';

export type OwnKeys = ReturnType<typeof watchOwnKeys>;

/**
 * Follows each key by itself: own_key_rejected holds from its first refusal until a later answer under it, or
 * until another key replaces it. Of `client`, undefined means the key of --api-key. `keyOf`: the key that the
 * client has now; a request with another one, which was replaced since, says nothing. `origin`: where the key
 * of --api-key comes from.
 */
export function watchOwnKeys(
  notices: NoticeSink,
  keyOf: (client: string | undefined) => string | undefined,
  origin: () => string | undefined,
) {
  /** The refused keys, by client. */
  const refused = new Map<string | undefined, string>();
  const forget = (client: string | undefined): void => {
    if (refused.delete(client)) notices.clear('own_key_rejected', client);
  };
  return {
    /** The service responded with 401 to a request with this key. Nothing authenticates that. */
    refused(client: string | undefined, key: string): void {
      if (key !== keyOf(client)) return;
      refused.set(client, key);
      const from = client === undefined ? origin() : `the client ${client} in the file of --clients`;
      notices.set('own_key_rejected', `401 for the key of ${from}`, client);
    },
    /** The service sent a response that authenticates, to a request with this key. */
    answered(client: string | undefined, key: string): void {
      if (key === keyOf(client)) forget(client);
    },
    /** `keyOf` may give other keys now. */
    replaced(): void {
      for (const [client, key] of refused) if (key !== keyOf(client)) forget(client);
    },
  };
}
