/** Manages the places of --max-in-flight, and the queues of requests that wait for a place. */
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';

/** The most waiting requests of all clients, and of one client. Each waiting request holds a connection. */
const MOST_WAITING = 1024;
const MOST_WAITING_OF_ONE = 256;

export type FairQueue = ReturnType<typeof createFairQueue>;

interface Queue {
  running: number;
  /** Functions that admit the waiting requests, in order of arrival. */
  readonly waiting: Set<() => void>;
}

/** `limit` is the most requests that may run at the same time. */
export function createFairQueue(limit: number, clock: Clock) {
  const late = `no place became free within ${clock.times.placeWait / 1000} s`;
  /** Of 8 or more places, a sixteenth (rounded up) is reserved for clients that run no request. */
  const kept = limit < 8 ? 0 : Math.ceil(limit / 16);
  /** Client name (undefined is one more client) → its queue. The client that last got a place comes last. */
  const queues = new Map<string | undefined, Queue>();
  let running = 0;
  let waiting = 0;

  function take(name: string | undefined, queue: Queue): () => void {
    running += 1;
    queue.running += 1;
    queues.delete(name);
    queues.set(name, queue);
    return () => {
      running -= 1;
      queue.running -= 1;
      if (waiting > 0) letNextIn();
    };
  }

  /** Without --clients, there are no client names, and no places are reserved for other clients. */
  const hasPlaceFor = (name: string | undefined, queue: Queue): boolean =>
    running < (name === undefined || queue.running === 0 ? limit : limit - kept);

  /** Lets in the client with the fewest running requests. Of equals, takes the one served longest ago. */
  function letNextIn(): void {
    const lines = [...queues].filter(([, queue]) => queue.waiting.size > 0);
    const [next] = lines.sort(([, one], [, other]) => one.running - other.running);
    if (next === undefined || !hasPlaceFor(...next)) return; // clients with more requests find no place
    const [enter] = next[1].waiting;
    enter?.();
  }

  function wait(name: string | undefined, queue: Queue, signal: AbortSignal): Promise<() => void> {
    const { promise, resolve, reject } = Promise.withResolvers<() => void>();
    const leaveLine = (then: () => void): void => {
      inTime();
      signal.removeEventListener('abort', aborted);
      queue.waiting.delete(enter);
      waiting -= 1;
      then();
    };
    const enter = (): void => leaveLine(() => resolve(take(name, queue)));
    const aborted = (): void => leaveLine(() => reject(signal.reason));
    const tooLate = (): void => leaveLine(() => reject(refused(late)));
    const inTime = clock.after(clock.times.placeWait, tooLate, 'waiting');
    signal.addEventListener('abort', aborted);
    queue.waiting.add(enter);
    waiting += 1;
    return promise;
  }

  return {
    /**
     * Gives the client a place, at once or when a place becomes free. Returns a function that gives the place
     * back and must be called once. A free place goes to the client with the fewest running requests. Clients
     * with equally many requests take turns, and the requests of one client are in order of arrival. Rejects
     * with max_in_flight_reached after 10 s. Throws this error at once if 256 requests of the client or 1,024
     * in all already wait. Rejects with the reason of `signal`, which must not be aborted yet.
     */
    enter(name: string | undefined, signal: AbortSignal): (() => void) | Promise<() => void> {
      const queue = queues.get(name) ?? { running: 0, waiting: new Set() };
      if (hasPlaceFor(name, queue)) return take(name, queue); // no waiting request could have this place
      if (queue.waiting.size >= MOST_WAITING_OF_ONE || waiting >= MOST_WAITING)
        throw refused('too many requests wait already');
      queues.set(name, queue);
      return wait(name, queue, signal);
    },
    /** Returns the numbers of running and waiting requests, for tests. */
    size: () => ({ running, waiting }),
  };
}

/** Retry-After is short, because a place may become free at any time. */
function refused(why: string): PrivatemodeError {
  const message = `as many requests run as --max-in-flight allows, and ${why}`;
  return new PrivatemodeError('max_in_flight_reached', message, { retryAfter: 2 });
}
