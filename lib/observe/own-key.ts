/**
 * Watches whether the service still accepts the operator's API keys: the key of --api-key, and the keys in
 * the clients file. The watch judges by the responses to requests with these keys.
 */
import type { NoticeSink } from './notices.ts';

export type OwnKeys = ReturnType<typeof watchOwnKeys>;

/**
 * Sets the notice own_key_rejected when the service first refuses a key. The notice ends when a later request
 * with the key gets an authentic response, or when another key replaces the key. Each key has a notice of its
 * own. `client`: undefined for the key of --api-key. `keyOf`: returns the present key of a client; responses
 * to requests with an earlier key are ignored. `origin`: returns where the key of --api-key comes from.
 */
export function watchOwnKeys(
  notices: NoticeSink,
  keyOf: (client: string | undefined) => string | undefined,
  origin: () => string | undefined,
) {
  /** The keys that the service refused, by client. */
  const refused = new Map<string | undefined, string>();
  const forget = (client: string | undefined): void => {
    if (refused.delete(client)) notices.clear('own_key_rejected', client);
  };
  return {
    /**
     * Called when the service sent 401 to a request with this key. Nothing authenticates a response with 401.
     */
    refused(client: string | undefined, key: string): void {
      if (key !== keyOf(client)) return;
      refused.set(client, key);
      const from = client === undefined ? origin() : `the client ${client} in the file of --clients`;
      notices.set('own_key_rejected', `401 for the key of ${from}`, client);
    },
    /** Called when the service has sent an authentic response to a request with this key. */
    answered(client: string | undefined, key: string): void {
      if (key === keyOf(client)) forget(client);
    },
    /** Called when the keys that `keyOf` returns may have changed. */
    replaced(): void {
      for (const [client, key] of refused) if (key !== keyOf(client)) forget(client);
    },
  };
}
