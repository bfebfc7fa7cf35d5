/**
 * Whether the service still accepts the API keys of the operator, judged by its responses to requests with
 * them: the key of --api-key, and the keys of entries of the clients file.
 */
import type { ConditionSink } from './conditions.ts';

/**
 * `refused`: the service responded with 401 to a request with a key of the operator. `answered`: it sent a
 * response that authenticates. `client`: the client whose entry has the key; undefined: the key of --api-key.
 * `key`: the key itself, because the file may have another one by now; it goes no further. `ageMs`: how long
 * ago that was; default: 0. `configured`: the file of --api-key has another key. `clients`: the clients file
 * was read; these clients have `keys` of their own, and no others.
 */
export type OwnKeyEvent =
  | {
      readonly type: 'refused' | 'answered';
      readonly client: string | undefined;
      readonly key: string;
      readonly ageMs?: number;
    }
  | { readonly type: 'configured'; readonly key: string }
  | { readonly type: 'clients'; readonly keys: ReadonlyMap<string, string> };

const MINUTE_MS = 60_000;
const MANY = 3;

/**
 * Follows the events of all workers, for each key by itself. The condition own_key_rejected begins with the
 * first refusal of a key, is critical at three refusals within a minute, and ends with a later `answered`
 * under that key, or when another key replaces it, or none. Ignores requests that were sent with a key that
 * was replaced since. `now`: ms of a clock that is never set back. `origin`: where the key of --api-key comes
 * from.
 */
export function watchOwnKey({
  conditions,
  origin = () => undefined,
  now = () => performance.now(),
}: {
  readonly conditions: ConditionSink;
  readonly origin?: (() => string | undefined) | undefined;
  readonly now?: () => number;
}): (event: OwnKeyEvent) => void {
  const refusals = new Map<string | undefined, { readonly key: string; readonly times: readonly number[] }>();
  let configured: string | undefined;
  let keyed: ReadonlyMap<string, string> | undefined;

  /** Whether the client has another key by now; undefined: the key of --api-key. */
  function isReplaced(client: string | undefined, key: string): boolean {
    if (client === undefined) return configured !== undefined && configured !== key;
    return keyed !== undefined && keyed.get(client) !== key;
  }

  function accepted(client: string | undefined): void {
    if (refusals.delete(client)) conditions.clear('own_key_rejected', { of: client });
  }

  return (event) => {
    if (event.type === 'configured' || event.type === 'clients') {
      if (event.type === 'configured') configured = event.key;
      else keyed = event.keys;
      for (const [client, { key }] of refusals) if (isReplaced(client, key)) accepted(client);
      return;
    }
    const { type, client, key, ageMs = 0 } = event;
    if (isReplaced(client, key)) return;
    const { times = [] } = refusals.get(client) ?? {};
    if (type === 'answered') {
      const refusedAt = times.at(-1) ?? 0;
      return now() - ageMs < refusedAt ? undefined : accepted(client);
    }
    const refused = [...times, now()].slice(-MANY);
    refusals.set(client, { key, times: refused });
    const isMany = refused.length === MANY && now() - (refused[0] as number) <= MINUTE_MS;
    const from =
      client === undefined ? (origin() ?? '--api-key') : `the client ${client} in the file of --clients`;
    conditions.set('own_key_rejected', `401 for the key of ${from}`, {
      of: client,
      severity: isMany ? 'critical' : 'warning',
    });
  };
}

/** ms between two `answered` events that a worker passes on while the service refuses nothing. */
const QUIET_MS = 1_000;

/**
 * Passes on the events of a worker: each refusal, but `answered` for each key at most once a second while it
 * is not refused, since each request is such an event. The last one of a second is held back until its end,
 * because another worker may have reported a refusal in the meantime.
 */
export function thinOwnKeyEvents(
  send: (event: OwnKeyEvent) => void,
  now: () => number = () => performance.now(),
): (event: OwnKeyEvent) => void {
  /**
   * By client. `timer` ends the second after an `answered` under `key` was sent. `heldAt`: when the event
   * came that is held back until then.
   */
  const quiet = new Map<
    string | undefined,
    { readonly key: string; readonly timer: NodeJS.Timeout; heldAt: number | undefined }
  >();

  function end(client: string | undefined): void {
    clearTimeout(quiet.get(client)?.timer);
    quiet.delete(client);
  }

  function answered(client: string | undefined, key: string, ageMs: number): void {
    const timer = setTimeout(() => {
      const heldAt = quiet.get(client)?.heldAt;
      quiet.delete(client);
      if (heldAt !== undefined) answered(client, key, now() - heldAt);
    }, QUIET_MS).unref();
    quiet.set(client, { key, timer, heldAt: undefined });
    send({ type: 'answered', client, key, ageMs });
  }

  return (event) => {
    if (event.type === 'answered') {
      const { client, key } = event;
      const second = quiet.get(client);
      if (second?.key === key) second.heldAt = now();
      else {
        end(client);
        answered(client, key, 0);
      }
      return;
    }
    if (event.type === 'refused') end(event.client);
    else if (event.type === 'clients')
      for (const [client, { key }] of quiet)
        if (client !== undefined && event.keys.get(client) !== key) end(client);
    send(event);
  };
}
