/** Whether the service still accepts the proxy's own API key, by what it answers to requests that carry that key. */
import type { ConditionSink } from './conditions.ts';

/** `refused`: 401 to a request with the configured key. `answered`: any other response to one. */
export type OwnKeyEvent = 'refused' | 'answered';

const MINUTE_MS = 60_000;
const MANY = 3;

/**
 * Follows the events of all workers: the condition own_key_rejected begins with the first refusal, is critical at three within a minute,
 * and is over with the next answer. `now`: ms of a clock that is never set back. `origin`: where the key comes from.
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
  let refused: readonly number[] = [];
  return (event) => {
    if (event === 'answered') {
      if (refused.length > 0) conditions.clear('own_key_rejected');
      refused = [];
      return;
    }
    refused = [...refused, now()].slice(-MANY);
    const isMany = refused.length === MANY && now() - (refused[0] as number) <= MINUTE_MS;
    const from = origin();
    conditions.set('own_key_rejected', `401 for the key of ${from ?? '--api-key'}`, {
      severity: isMany ? 'critical' : 'warning',
    });
  };
}

/** ms between two `answered` that a worker reports while nothing was refused. */
const QUIET_MS = 1_000;

/** Passes on the events of a worker: each refusal, and answers at most once a second, since each request is one. */
export function thinOwnKeyEvents(
  send: (event: OwnKeyEvent) => void,
  now: () => number = () => performance.now(),
): (event: OwnKeyEvent) => void {
  let last: OwnKeyEvent | undefined;
  let sentAt = Number.NEGATIVE_INFINITY;
  return (event) => {
    if (event === 'answered' && last === 'answered' && now() - sentAt < QUIET_MS) return;
    last = event;
    sentAt = now();
    send(event);
  };
}
