/**
 * Gives a request its permit: first the limits of its client must admit it, then it needs one of the places
 * for all running requests.
 */
import type { FairQueue } from './fair-queue.ts';
import type { LimitedClient, Permit, RequestCounts } from './limits.ts';

export interface Entering {
  /** Undefined without --clients. */
  readonly client: LimitedClient | undefined;
  /** Aborted when the request is over before it has its permit. */
  readonly signal: AbortSignal;
}

export interface RequestGate {
  /**
   * Gives a request its permit, at once if no store has to be asked and a place is free. Throws, or
   * rejects with, the codes of RequestCounts.admit, max_in_flight_reached, and the reason of `signal`. The
   * limits of the client come first and never wait. A request that the queue refuses still counts in the
   * minute of its client; its place of maxConcurrent is given back.
   */
  enter(entering: Entering): Permit | Promise<Permit>;
}

/** `counts`: with --clients; `queue`: with --max-in-flight. */
export function createRequestGate({
  counts,
  queue,
}: {
  readonly counts: RequestCounts | undefined;
  readonly queue: FairQueue | undefined;
}): RequestGate {
  /**
   * Finds a place for a request that the limits of its client admit. If there is none, gives that admission
   * back.
   */
  function enterQueue(admitted: Permit | undefined, { client, signal }: Entering): Permit | Promise<Permit> {
    try {
      signal.throwIfAborted(); // the request may be over since the counts were asked for
      const leave = queue?.enter(client?.name, signal);
      if (!(leave instanceof Promise)) return permitOf(admitted, leave);
      return leave.then(
        (left) => permitOf(admitted, left),
        (reason) => {
          admitted?.release(0);
          throw reason;
        },
      );
    } catch (thrown) {
      admitted?.release(0);
      throw thrown;
    }
  }

  return {
    enter(entering) {
      const { client, signal } = entering;
      signal.throwIfAborted();
      const admitted = client === undefined ? undefined : counts?.admit(client);
      return admitted instanceof Promise
        ? admitted.then((permit) => enterQueue(permit, entering))
        : enterQueue(admitted, entering);
    },
  };
}

const permitOf = (admitted: Permit | undefined, leave: (() => void) | undefined): Permit => ({
  release(tokens) {
    admitted?.release(tokens);
    leave?.();
  },
});
