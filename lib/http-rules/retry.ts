/**
 * When a request is tried a second time, and how (docs/protocol/inference.md 10). A request is retried at
 * most once, whatever the reason. Nothing else is ever sent twice: a retry can run the inference twice.
 */
import { type Clock, pause, untilAborted } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { UpstreamFailure } from '../network/failures.ts';

export interface RetryRow {
  readonly id: 'no_secret' | 'connection_reset' | 'stale_connection';
  readonly why: string;
  /** Whether the second attempt gets a connection of its own; otherwise it gets a new secret. */
  readonly fresh: boolean;
}

const FORGOTTEN = { id: 'no_secret', why: 'the service does not know the secret', fresh: false } as const;

const RETRIES: readonly RetryRow[] = [
  FORGOTTEN,
  { id: 'connection_reset', why: 'the connection was reset while reading', fresh: true },
  { id: 'stale_connection', why: 'an idle connection had been closed', fresh: true },
];

/**
 * Calls `attempt` and, if a row of RETRIES asks for it, calls it once more with that row. Resolves with the
 * result of the last attempt. `errorIn` reads the error in it that may ask for a retry. `verified` gives a
 * usable epoch, `renewed` the epoch that replaces a rejected secret.
 *
 * Rejects with the failure of the last attempt, with what `errorIn` and `renewed` throw, with secret_denied
 * if the service denies the second attempt too, and with the reason of the waiter's signal. A client never gets the
 * service's "no secret for ID", because it can do nothing about it.
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
  let row: RetryRow = FORGOTTEN;
  let failure: unknown; // of the first attempt
  try {
    const answer = await attempt(epoch);
    const error = errorIn(answer);
    if (error === undefined || !isDenial(await error)) return answer;
  } catch (thrown) {
    const asking = RETRIES.find(({ id }) => thrown instanceof UpstreamFailure && id === thrown.retry);
    if (asking === undefined) throw thrown;
    row = asking;
    failure = thrown;
  }

  const { signal } = by.waiter;
  signal.throwIfAborted();
  let next: Epoch;
  try {
    next = await untilAborted(row.fresh ? verified() : renewed(epoch.secretId), signal);
    if (row.id === 'connection_reset') await pause(clock, clock.times.resetPause, signal, 'waiting');
  } catch (thrown) {
    signal.throwIfAborted();
    throw failure ?? thrown;
  }
  const second = await attempt(next, row);
  if (!isDenial(await errorIn(second))) return second;
  // Replace the secret for the next request; this one had its retry.
  if (row.fresh) await untilAborted(renewed(next.secretId), signal);
  const denied = 'the service does not know the secret, and the request was tried twice';
  throw new PrivatemodeError('secret_denied', denied);
}

/**
 * Whether the body of a response may ask for a retry, if its endpoint is encrypted. Nothing authenticates the
 * header that marks an error as plain, and a gateway on the way may drop it, so the header does not count.
 */
export const mayAskForRetry = (status: number): boolean => status === 500;

const NO_SECRET = 'no secret for ID';

const isDenial = (body: Uint8Array | undefined): boolean =>
  body !== undefined && new TextDecoder('latin1').decode(body).includes(NO_SECRET);
