/**
 * When a request is tried a second time, and how (docs/protocol/inference.md 10). A request is retried at
 * most once, whatever the reason. Nothing else is ever sent twice: a retry can run the inference twice.
 */
import { type Clock, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { UpstreamFailure } from '../network/failures.ts';
import { untilAborted } from './until-aborted.ts';

export interface RetryRow {
  readonly id: 'no_secret' | 'connection_reset' | 'stale_connection';
  readonly why: string;
  /** The row of lib/times.ts that the second attempt waits for. */
  readonly pause?: 'resetPause';
  /** Replace the secret first: the service has forgotten it. */
  readonly renew: boolean;
  /** Send the second attempt over a connection of its own. */
  readonly fresh: boolean;
}

const FRESH = { renew: false, fresh: true } as const;

export const RETRIES: readonly RetryRow[] = [
  { ...FRESH, id: 'no_secret', why: 'the service does not know the secret', renew: true, fresh: false },
  { ...FRESH, id: 'connection_reset', why: 'the connection was reset while reading', pause: 'resetPause' },
  { ...FRESH, id: 'stale_connection', why: 'an idle connection had been closed' },
];

/**
 * Calls `attempt` and, if a row of RETRIES asks for it, calls it once more with that row. Resolves with the
 * result of the last attempt. `errorIn` reads the error in it that may ask for a retry. `verified` gives a
 * usable epoch, `renewed` the epoch that replaces a rejected secret.
 *
 * Rejects with the failure of the last attempt, with what `renewed` throws, with secret_denied if the service
 * denies the second attempt too, and with the reason of the waiter's signal. A client never gets the service's "no
 * secret for ID", because it can do nothing about it.
 */
export async function withOneRetry<Epoch extends { readonly secretId: string }, Answer>(
  epoch: Epoch,
  by: {
    readonly attempt: (epoch: Epoch, retry?: RetryRow) => Promise<Answer>;
    readonly errorIn: (answer: Answer) => Promise<Uint8Array | undefined> | undefined;
    readonly verified: () => Epoch | Promise<Epoch>;
    readonly renewed: (rejected: string) => Promise<Epoch>;
    /** Asked for its signal only if there is something to wait for. */
    readonly waiter: { readonly signal: AbortSignal };
    readonly clock: Clock;
  },
): Promise<Answer> {
  const { attempt, errorIn, verified, renewed, clock } = by;
  let row: RetryRow | undefined;
  let first: () => Answer; // what the application gets without a second attempt
  try {
    const answer = await attempt(epoch);
    const error = errorIn(answer);
    row = error && rowOf(retryOf(await error));
    if (row === undefined) return answer;
    first = () => answer;
  } catch (thrown) {
    row = rowOf(thrown instanceof UpstreamFailure ? thrown.retry : undefined);
    if (row === undefined) throw thrown;
    first = () => {
      throw thrown;
    };
  }

  const { signal } = by.waiter;
  signal.throwIfAborted();
  let next: Epoch;
  if (row.renew) next = await untilAborted(renewed(epoch.secretId), signal);
  else {
    try {
      next = await untilAborted(verified(), signal); // the first attempt may have outlived its epoch
      if (row.pause !== undefined) await pause(clock, clock.times[row.pause], signal, 'waiting');
    } catch {
      signal.throwIfAborted();
      return first();
    }
  }
  const second = await attempt(next, row);
  if (retryOf(await errorIn(second)) !== 'no_secret') return second;
  // Replace the secret for the next request; this one had its retry.
  if (!row.renew) await untilAborted(renewed(next.secretId), signal);
  throw new PrivatemodeError(
    'secret_denied',
    'the service does not know the secret, and the request was tried twice',
  );
}

/**
 * Whether the body of a response may ask for a retry, if its endpoint is encrypted. Nothing authenticates the
 * header that marks an error as plain, and a gateway on the way may drop it, so the header does not count.
 */
export const mayAskForRetry = (status: number): boolean => status === 500;

const NO_SECRET = 'no secret for ID';

const retryOf = (errorBody: Uint8Array | undefined): RetryRow['id'] | undefined =>
  errorBody && new TextDecoder('latin1').decode(errorBody).includes(NO_SECRET) ? 'no_secret' : undefined;

const rowOf = (id: RetryRow['id'] | undefined): RetryRow | undefined => RETRIES.find((row) => row.id === id);
