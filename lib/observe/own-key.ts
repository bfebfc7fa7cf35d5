/**
 * Whether the service still accepts the API keys of the operator, judged by its responses to requests with
 * them: the key of --api-key, and the keys of entries of the clients file.
 */
import type { ConditionSink } from './conditions.ts';

/**
 * `refused`: the service responded with 401 to a request with a key of the operator. `answered`: it sent a
 * response that authenticates. `client`: the client whose entry has the key; undefined: the key of --api-key.
 * `ageMs`: how long ago that was; default: 0. `clients`: the clients file was read; the clients `withKeys`
 * have keys of their own, and no others.
 */
export type OwnKeyEvent =
  | {
      readonly type: 'refused' | 'answered';
      readonly client: string | undefined;
      readonly ageMs?: number;
    }
  | { readonly type: 'clients'; readonly withKeys: readonly string[] };

const MINUTE_MS = 60_000;
const MANY = 3;

/**
 * Follows the events of all workers, for each key by itself. The condition own_key_rejected begins with the
 * first refusal of a key, is critical at three refusals within a minute, and ends with a later `answered`
 * under that key, or when no client has the key any more. `now`: ms of a clock that is never set back.
 * `origin`: where the key of --api-key comes from.
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
  const refusals = new Map<string | undefined, readonly number[]>();
  let keyed: readonly string[] | undefined;

  function accepted(client: string | undefined): void {
    if (refusals.delete(client)) conditions.clear('own_key_rejected', { of: client });
  }

  return (event) => {
    if (event.type === 'clients') {
      keyed = event.withKeys;
      for (const client of withoutKeys(refusals, keyed)) accepted(client);
      return;
    }
    const { type, client, ageMs = 0 } = event;
    if (type === 'answered') {
      const refusedAt = refusals.get(client)?.at(-1) ?? 0;
      return now() - ageMs < refusedAt ? undefined : accepted(client);
    }
    if (client !== undefined && keyed?.includes(client) === false) return; // the request began before
    const refused = [...(refusals.get(client) ?? []), now()].slice(-MANY);
    refusals.set(client, refused);
    const isMany = refused.length === MANY && now() - (refused[0] as number) <= MINUTE_MS;
    const from =
      client === undefined ? (origin() ?? '--api-key') : `the client ${client} in the file of --clients`;
    conditions.set('own_key_rejected', `401 for the key of ${from}`, {
      of: client,
      severity: isMany ? 'critical' : 'warning',
    });
  };
}

/** The clients in `known` that have no key of their own any more. */
const withoutKeys = (known: ReadonlyMap<string | undefined, unknown>, withKeys: readonly string[]) =>
  [...known.keys()].filter((client) => client !== undefined && !withKeys.includes(client));

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
   * By key. `timer` ends the second after an `answered` was sent. `heldAt`: when the event came that is held
   * back until then.
   */
  const quiet = new Map<string | undefined, { readonly timer: NodeJS.Timeout; heldAt: number | undefined }>();

  function end(client: string | undefined): void {
    clearTimeout(quiet.get(client)?.timer);
    quiet.delete(client);
  }

  function answered(client: string | undefined, ageMs: number): void {
    const timer = setTimeout(() => {
      const heldAt = quiet.get(client)?.heldAt;
      quiet.delete(client);
      if (heldAt !== undefined) answered(client, now() - heldAt);
    }, QUIET_MS).unref();
    quiet.set(client, { timer, heldAt: undefined });
    send({ type: 'answered', client, ageMs });
  }

  return (event) => {
    if (event.type === 'clients') for (const client of withoutKeys(quiet, event.withKeys)) end(client);
    else if (event.type === 'refused') end(event.client);
    else {
      const second = quiet.get(event.client);
      if (second === undefined) answered(event.client, 0);
      else second.heldAt = now();
      return;
    }
    send(event);
  };
}
