/**
 * When a request is tried a second time, and how (docs/protocol/inference.md 10; at most one retry of any kind).
 * Nothing else is ever sent twice: a retry can run the inference twice.
 */
import { PrivatemodeError } from '../errors.ts';
import { UpstreamFailure } from '../network/upstream-failure.ts';
import { untilAborted } from './until-aborted.ts';

export interface RetryRow {
  readonly id: 'no_secret' | 'connection_reset' | 'stale_connection';
  readonly why: string;
  /** ms to wait before the second attempt. */
  readonly delay: number;
  /** Replace the secret first: the service has forgotten it. */
  readonly renew: boolean;
  /** Use a connection of its own. */
  readonly fresh: boolean;
}

const AT_ONCE = { delay: 0, renew: false, fresh: true } as const;

export const RETRIES: readonly RetryRow[] = [
  { ...AT_ONCE, id: 'no_secret', why: 'the service does not know the secret', renew: true, fresh: false },
  { ...AT_ONCE, id: 'connection_reset', why: 'the connection was reset while reading', delay: 50 },
  { ...AT_ONCE, id: 'stale_connection', why: 'an idle connection had been closed' },
];

/**
 * What the first attempt resolves with, or the second one where a row asks for it, which `attempt` is given then. `plainBody`: the
 * text of an error that may ask for a retry. `verified` waits for a usable epoch, `renewed` for the one that replaces a rejected
 * secret. Rejects with what the last attempt failed with, with what `renewed` throws, with secret_denied where the second attempt is
 * denied, too, and with the reason of `signal`. A client never gets the service's "no secret for ID", since it can do nothing about it.
 */
export async function withOneRetry<
  Epoch extends { readonly secretId: string },
  Answer extends { readonly plainBody: Uint8Array | undefined },
>(
  epoch: Epoch,
  sources: {
    readonly verified: () => Promise<Epoch>;
    readonly renewed: (rejected: string) => Promise<Epoch>;
    readonly signal: AbortSignal;
  },
  attempt: (epoch: Epoch, retry?: RetryRow) => Promise<Answer>,
): Promise<Answer> {
  const { verified, renewed, signal } = sources;
  const first = attempt(epoch);
  const id = await first.then(
    ({ plainBody }) => retryOf(plainBody),
    (thrown: unknown) => (thrown instanceof UpstreamFailure ? thrown.retry : undefined),
  );
  const row = RETRIES.find((each) => each.id === id);
  if (row === undefined) return first;

  signal.throwIfAborted();
  let next: Epoch;
  if (row.renew) next = await untilAborted(renewed(epoch.secretId), signal);
  else {
    try {
      next = await untilAborted(verified(), signal); // the first attempt may have outlived its epoch
      if (row.delay > 0) await untilAborted(new Promise((done) => setTimeout(done, row.delay)), signal);
    } catch {
      signal.throwIfAborted();
      return first; // its failure is the one to tell
    }
  }
  const second = await attempt(next, row);
  if (retryOf(second.plainBody) !== 'no_secret') return second;
  if (!row.renew) await untilAborted(renewed(next.secretId), signal); // for the next request: this one had its retry
  throw new PrivatemodeError(
    'secret_denied',
    'the service does not know the secret, and the request was tried twice',
  );
}

/** Whether the body of a response may ask for a retry. `encrypted`: its header that says whether it is. */
export const mayAskForRetry = (status: number | undefined, encrypted: unknown): boolean =>
  status === 500 && encrypted === 'false';

const NO_SECRET = 'no secret for ID';

const retryOf = (plainBody: Uint8Array | undefined): RetryRow['id'] | undefined =>
  plainBody && new TextDecoder('latin1').decode(plainBody).includes(NO_SECRET) ? 'no_secret' : undefined;
