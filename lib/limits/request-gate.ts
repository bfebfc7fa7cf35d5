/**
 * Gives a request its permit. First the limits of the request's client must admit the request. Then the
 * request needs one of the places that all running requests share.
 */
import type { FairQueue } from './fair-queue.ts';
import type { LimitedClient, Permit, RequestCounts } from './limits.ts';

export interface Entering {
  /** The client of the request, or undefined without --clients. */
  readonly client: LimitedClient | undefined;
  /** The signal that is aborted if the request ends before it has a permit. */
  readonly signal: AbortSignal;
}

/** `counts` is set with --clients, and `queue` with --max-in-flight. */
type Limiting = { readonly counts?: RequestCounts | undefined; readonly queue?: FairQueue | undefined };

export type RequestGate = ReturnType<typeof createRequestGate>;

export function createRequestGate({ counts, queue }: Limiting) {
  /** Finds a place for an admitted request. If there is no place, the admission is revoked. */
  function placeFor(admitted: Permit | undefined, { client, signal }: Entering): Permit | Promise<Permit> {
    const giveBack = (reason: unknown): never => {
      admitted?.release(0);
      throw reason;
    };
    try {
      signal.throwIfAborted(); // the request may have ended while the counts were queried
      const place = queue?.enter(client?.name, signal);
      if (!(place instanceof Promise)) return permitOf(admitted, place);
      return place.then((leave) => permitOf(admitted, leave), giveBack);
    } catch (thrown) {
      return giveBack(thrown);
    }
  }

  return {
    /**
     * Gives a request its permit, at once if no store has to be queried and a place is free. Throws or
     * rejects with the codes of RequestCounts.admit, max_in_flight_reached, or the reason of `signal`. The
     * limits of the client are checked first and never wait. A request that the queue refuses still counts
     * for the requestsPerMinute of its client, but not for the maxConcurrent.
     */
    enter(entering: Entering): Permit | Promise<Permit> {
      entering.signal.throwIfAborted();
      const admitted = entering.client && counts?.admit(entering.client);
      return admitted instanceof Promise
        ? admitted.then((permit) => placeFor(permit, entering))
        : placeFor(admitted, entering);
    },
  };
}

const permitOf = (admitted: Permit | undefined, leave: (() => void) | undefined): Permit => ({
  release(tokens) {
    admitted?.release(tokens);
    leave?.();
  },
});
