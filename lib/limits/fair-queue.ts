/** The places of --max-in-flight, of which a client that floods leaves some to the others, and the queue for them. */
import { PrivatemodeError } from '../errors.ts';
import { WaitingLine } from './waiting-line.ts';

/** ms that a request waits for a place. */
const WAIT = 10_000;
/** Seconds: places become free at any time. */
const RETRY_AFTER = 2;
/** Requests that wait. Each holds a connection. */
const MOST_WAITING = 1024;
const MOST_WAITING_OF_ONE = 256;
/** Of so many places one is kept for clients that have nothing running; of fewer than half as many, none is. */
const KEPT_ONE_OF = 16;

/** Gives the place back; a second call does nothing. */
export type Leave = () => void;

export type FairQueue = ReturnType<typeof createFairQueue>;

interface Queue {
  running: number;
  readonly waiting: WaitingLine<undefined, Leave>;
}

/** `limit`: requests that run at the same time. `wait`: ms. */
export function createFairQueue(limit: number, { wait = WAIT }: { readonly wait?: number } = {}) {
  const kept = 2 * limit < KEPT_ONE_OF ? 0 : Math.ceil(limit / KEPT_ONE_OF);
  /** Those of whom something runs or waits; undefined is one more client. Whoever was given a place last comes last. */
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

  /** Whoever has something running leaves the kept places alone; without --clients there is nobody to leave them to. */
  const hasPlaceFor = (name: string | undefined, queue: Queue): boolean =>
    running < (name === undefined || queue.running === 0 ? limit : limit - kept);

  const waitingInAll = (): number =>
    [...clients.values()].reduce((sum, { waiting }) => sum + waiting.size, 0);

  /** One of whoever has the fewest running; of several the one who has been without a turn the longest. */
  function letNextIn(): void {
    let chosen: readonly [string | undefined, Queue] | undefined;
    for (const client of clients) {
      const [, queue] = client;
      if (queue.waiting.size > 0 && (chosen === undefined || queue.running < chosen[1].running))
        chosen = client;
    }
    // Whoever has more running than this one finds no place either.
    if (chosen === undefined || !hasPlaceFor(...chosen)) return;
    const [first] = chosen[1].waiting;
    first?.enter(take(...chosen));
  }

  /** Makes room where the queue is full: the newest of whoever has most waiting gives way to one who has fewer. */
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
      ...{ signal, wait },
      tooLate: () => refused(`no place became free within ${wait / 1000} s`),
      refused: () => forget(name, queue),
    }).place;
  }

  return {
    /**
     * A place, at once where fewer than `limit` requests run; otherwise when one becomes free. It goes to the client that has the
     * fewest running, among equals to each in turn, and within a client in order of arrival. From 8 places on, a sixteenth of them
     * (rounded up) is kept: a client that has something running gets none of these. Throws, or rejects with, max_in_flight_reached
     * after 10 s, or where 256 requests of the client or 1,024 in all wait already (of which the newest of the client with most gives
     * way to clients with fewer), and the reason of `signal`.
     */
    enter(name: string | undefined, signal: AbortSignal): Leave | Promise<Leave> {
      signal.throwIfAborted();
      const queue = queueOf(name);
      if (hasPlaceFor(name, queue)) return take(name, queue); // then nobody waits who could have it
      try {
        return waitIn(name, queue, signal);
      } catch (thrown) {
        forget(name, queue);
        throw thrown;
      }
    },
    /** Requests that run and that wait. For tests. */
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
