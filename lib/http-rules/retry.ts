/**
 * When a request is tried a second time, and how (docs/protocol/inference.md 10). A request is retried at
 * most once, and only for the reasons of RETRIES, because a retry can run the inference twice.
 */
import { type Clock, pause, untilAborted } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { UpstreamFailure } from '../network/transport-errors.ts';

/** With `fresh`, the second attempt gets a new connection. Without `fresh`, the attempt gets a new secret. */
const RETRIES = [
  { id: 'no_secret', why: 'the service does not know the secret', fresh: false },
  { id: 'connection_reset', why: 'the connection was reset while reading', fresh: true },
  { id: 'stale_connection', why: 'an idle connection had been closed', fresh: true },
] as const;
export type RetryRow = (typeof RETRIES)[number];

/**
 * Calls `attempt` and, if a row of RETRIES applies, once more with that row. Resolves with the result of the
 * last attempt. Rejects with the failure of an attempt, with what `errorIn` and `renewed` throw, with the
 * reason of the waiter's signal, and with secret_denied if the service denies the second attempt too. The
 * client never gets the service's "no secret for ID", because the client can do nothing about it.
 */
export async function withOneRetry<Epoch extends { readonly secretId: string }, Answer>(
  epoch: Epoch,
  by: {
    readonly attempt: (epoch: Epoch, retry?: RetryRow) => Promise<Answer>;
    /** The body of a response that may ask for a retry, or undefined if the response cannot ask for one. */
    readonly errorIn: (answer: Answer) => Promise<Uint8Array | undefined> | undefined;
    readonly verified: () => Epoch | Promise<Epoch>; // returns a usable epoch
    readonly renewed: (denied: string) => Promise<Epoch>; // returns the epoch that replaces a denied secret
    readonly waiter: { readonly signal: AbortSignal }; // `signal` is read only if there is a need to wait
    readonly clock: Clock;
  },
): Promise<Answer> {
  const { attempt, errorIn, verified, renewed, clock } = by;
  let row: RetryRow = RETRIES[0];
  let failure: unknown; // why the first attempt failed
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
  // The secret is replaced for the next request, because this request has had its retry.
  if (row.fresh) await untilAborted(renewed(next.secretId), signal);
  const denied = 'the service does not know the secret, and the request was tried twice';
  throw new PrivatemodeError('secret_denied', denied);
}

/** Whether a response may ask for a retry. Nothing authenticates the mark of plain errors: it is ignored. */
export const mayAskForRetry = (status: number): boolean => status === 500;

const isDenial = (body: Uint8Array | undefined): boolean =>
  body !== undefined && new TextDecoder('latin1').decode(body).includes('no secret for ID');
