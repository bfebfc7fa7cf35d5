/**
 * Whether the service still accepts the API keys of the operator, judged by its responses to requests with
 * them: the key of --api-key, and the keys of entries of the clients file.
 */
import { hash } from 'node:crypto';
import type { ConditionSink } from './conditions.ts';

/**
 * `refused`: the service responded with 401 to a request with a key of the operator. `answered`: it sent a
 * response that authenticates. `client`: the client whose entry has the key; undefined: the key of --api-key.
 * `key`: the digest of the key, because the file may have another one by now. `configured`: the file of
 * --api-key has another key. `clients`: the clients file was read; the clients in it have keys of their own
 * with these digests, and no others.
 */
export type OwnKeyEvent =
  | {
      readonly type: 'refused' | 'answered';
      readonly client: string | undefined;
      readonly key: string;
    }
  | { readonly type: 'configured'; readonly key: string }
  | { readonly type: 'clients'; readonly keys: ReadonlyMap<string, string> };

/** Stands for a key in events, which need not hold the key itself. */
export const keyDigest = (key: string): string => hash('sha256', key);

/**
 * Follows the events of all workers, for each key by itself. The condition own_key_rejected begins with the
 * first refusal of a key, and ends with a later `answered` under that key, or when another key replaces it,
 * or none. Ignores requests that were sent with a key that was replaced since. `origin`: where the key of
 * --api-key comes from.
 */
export function watchOwnKey({
  conditions,
  origin = () => undefined,
}: {
  readonly conditions: ConditionSink;
  readonly origin?: (() => string | undefined) | undefined;
}): (event: OwnKeyEvent) => void {
  /** The refused keys, by client; undefined: the key of --api-key. */
  const refused = new Map<string | undefined, string>();
  let configured: string | undefined;
  let keyed: ReadonlyMap<string, string> | undefined;

  /** Whether the client has another key by now; undefined: the key of --api-key. */
  function isReplaced(client: string | undefined, key: string): boolean {
    if (client === undefined) return configured !== undefined && configured !== key;
    return keyed !== undefined && keyed.get(client) !== key;
  }

  function accepted(client: string | undefined): void {
    if (refused.delete(client)) conditions.clear('own_key_rejected', { of: client });
  }

  return (event) => {
    if (event.type === 'configured' || event.type === 'clients') {
      if (event.type === 'configured') configured = event.key;
      else keyed = event.keys;
      for (const [client, key] of refused) if (isReplaced(client, key)) accepted(client);
      return;
    }
    const { type, client, key } = event;
    if (isReplaced(client, key)) return;
    if (type === 'answered') return accepted(client);
    refused.set(client, key);
    const from =
      client === undefined ? (origin() ?? '--api-key') : `the client ${client} in the file of --clients`;
    conditions.set('own_key_rejected', `401 for the key of ${from}`, { of: client });
  };
}
