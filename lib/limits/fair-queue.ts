/**
 * The places of --max-in-flight and the queue for them. A client that floods the gateway leaves some places
 * to the others.
 */
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { WaitingLine } from './waiting-line.ts';

/** Seconds for Retry-After. Few, because places become free at any time. */
const RETRY_AFTER = 2;
/** Highest number of waiting requests. Each of them holds a connection. */
const MOST_WAITING = 1024;
const MOST_WAITING_OF_ONE = 256;
/**
 * One place in 16, rounded up, is kept for clients that have nothing running. With fewer than 8 places, none
 * is kept.
 */
const KEPT_ONE_OF = 16;

/** Gives the place back; a second call does nothing. */
export type Leave = () => void;

export type FairQueue = ReturnType<typeof createFairQueue>;

interface Queue {
  running: number;
  readonly waiting: WaitingLine<undefined, Leave>;
}

/** `limit`: requests that run at the same time. */
export function createFairQueue(limit: number, clock: Clock) {
  const wait = clock.times.placeWait;
  const kept = 2 * limit < KEPT_ONE_OF ? 0 : Math.ceil(limit / KEPT_ONE_OF);
  /**
   * The clients with a running or waiting request; undefined is one more client. The client that was given a
   * place last comes last.
   */
  const clients = new Map<string | undefined, Queue>();
  let running = 0;

  function queueOf(name: string | undefined): Queue {
    let queue = clients.get(name);
    if (queue === undefined) {
      queue = { running: 0, waiting: new WaitingLine() };
      clients.set(name, queue);
    }
    return queue;
  }

  function take(name: string | undefined, queue: Queue): Leave {
    running += 1;
    queue.running += 1;
    clients.delete(name);
    clients.set(name, queue);
    let hasLeft = false;
    return () => {
      if (hasLeft) return;
      hasLeft = true;
      running -= 1;
      queue.running -= 1;
      forget(name, queue);
      letNextIn();
    };
  }

  function forget(name: string | undefined, queue: Queue): void {
    if (queue.running === 0 && queue.waiting.size === 0) clients.delete(name);
  }

  /**
   * A client that has something running may not take the kept places. Without --clients there are no other
   * clients to keep them for.
   */
  const hasPlaceFor = (name: string | undefined, queue: Queue): boolean =>
    running < (name === undefined || queue.running === 0 ? limit : limit - kept);

  const waitingInAll = (): number =>
    [...clients.values()].reduce((sum, { waiting }) => sum + waiting.size, 0);

  /**
   * Chooses the client that runs the fewest requests; among equals, the one whose last turn is longest ago.
   * Lets in its first waiting request.
   */
  function letNextIn(): void {
    let chosen: readonly [string | undefined, Queue] | undefined;
    for (const client of clients) {
      const [, queue] = client;
      if (queue.waiting.size > 0 && (chosen === undefined || queue.running < chosen[1].running))
        chosen = client;
    }
    // If this client finds no place, a client that has more running finds none either.
    if (chosen === undefined || !hasPlaceFor(...chosen)) return;
    const [first] = chosen[1].waiting;
    first?.enter(take(...chosen));
  }

  /**
   * Makes room if the queue is full: the newest request of the client that has most waiting gives way to a
   * client that has fewer.
   */
  function makeRoom(queue: Queue): void {
    if (queue.waiting.size >= MOST_WAITING_OF_ONE) throw refused('too many of its requests wait already');
    if (waitingInAll() < MOST_WAITING) return;
    let longest = queue;
    for (const other of clients.values()) if (other.waiting.size > longest.waiting.size) longest = other;
    if (longest.waiting.size <= queue.waiting.size + 1) throw refused('too many requests wait already');
    [...longest.waiting].at(-1)?.refuse(refused('too many requests wait already'));
  }

  function waitIn(name: string | undefined, queue: Queue, signal: AbortSignal): Promise<Leave> {
    makeRoom(queue);
    return queue.waiting.join(undefined, {
      clock,
      signal,
      wait,
      tooLate: () => refused(`no place became free within ${wait / 1000} s`),
      refused: () => forget(name, queue),
    }).place;
  }

  return {
    /**
     * Gives the client a place: at once if fewer than `limit` requests run, otherwise when one becomes free.
     * A free place goes to the client that has the fewest running, among equals to each in turn, and within a
     * client in order of arrival. If there are 8 places or more, a sixteenth of them (rounded up) is reserved
     * for clients that have nothing running. Throws, or rejects with, max_in_flight_reached after 10 s, or if
     * 256 requests of the client or 1,024 in all wait already, and the reason of `signal`. If 1,024 wait, the
     * newest request of the client with most gives way to clients with fewer.
     */
    enter(name: string | undefined, signal: AbortSignal): Leave | Promise<Leave> {
      signal.throwIfAborted();
      const queue = queueOf(name);
      if (hasPlaceFor(name, queue)) return take(name, queue); // then no waiting request could have this place
      try {
        return waitIn(name, queue, signal);
      } catch (thrown) {
        forget(name, queue);
        throw thrown;
      }
    },
    /** For tests: how many requests run and wait, and of how many clients. */
    size: () => ({ running, waiting: waitingInAll(), clients: clients.size }),
  };
}

const refused = (why: string): PrivatemodeError =>
  new PrivatemodeError(
    'max_in_flight_reached',
    `as many requests run as --max-in-flight allows, and ${why}`,
    {
      retryAfter: RETRY_AFTER,
    },
  );
