import { PrivatemodeError } from '../errors.ts';
import type { Counters } from '../observe/counters.ts';

/** The memory for the bodies of all requests together. */
export interface UploadBudget {
  /** Bytes. */
  readonly limit: number;
  /** A part of it for one request; nothing is reserved yet. */
  open(): UploadReservation;
}

/** What one request takes of the budget. */
export interface UploadReservation {
  /**
   * Reserves a body whose length is known; waits its turn where there is no room. Rejects with body_too_large where it is larger
   * than all there is, with too_many_uploads after the waiting time, and with the reason where `signal` aborts.
   */
  reserve(bytes: number, signal: AbortSignal): Promise<void>;
  /**
   * Reserves more for a body whose length is not known. Never waits: two that wait for each other's memory would wait
   * forever. Throws body_too_large and too_many_uploads.
   */
  grow(bytes: number): void;
  /** Gives everything back, and lets those in who wait for it. May be called more than once. */
  release(): void;
}

/** ms that a body waits for room. Default 10 s. */
const WAIT = 10_000;
/** Bytes of a body that counts as small. */
const SMALL = 1024 * 1024;
/**
 * Of the limit; the rest is for small bodies only. Announcing a large body costs nothing, so a few that are announced and
 * trickle in must not shut out everybody else.
 */
const FOR_LARGE = 7 / 8;

interface Waiting {
  readonly bytes: number;
  readonly admit: () => void;
}

/** A budget of `limit` bytes; what is reserved of it shows in `counters.bufferedBytes`. */
export function createUploadBudget(
  limit: number,
  { counters, wait = WAIT }: { readonly counters: Pick<Counters, 'bufferedBytes'>; readonly wait?: number },
): UploadBudget {
  let reserved = 0;
  // Each in order of arrival; small bodies need not wait until there is room for a large one.
  const small = new Set<Waiting>();
  const large = new Set<Waiting>();
  const queueFor = (bytes: number): Set<Waiting> => (bytes <= SMALL ? small : large);

  const change = (bytes: number): void => {
    reserved += bytes;
    counters.bufferedBytes = reserved;
  };

  /** Whether a request that has `own` bytes already may have that many more. */
  const fits = (own: number, bytes: number): boolean => {
    const alone = reserved === own;
    return reserved + bytes <= (alone || own + bytes <= SMALL ? limit : limit * FOR_LARGE);
  };

  const admitWaiting = (): void => {
    for (const queue of [small, large]) {
      for (const waiting of queue) {
        if (!fits(0, waiting.bytes)) break;
        waiting.admit();
      }
    }
  };

  function open(): UploadReservation {
    let own = 0;
    let released = false;
    let stopWaiting = (): void => {};

    const take = (bytes: number): void => {
      own += bytes;
      change(bytes);
    };

    function waitFor(bytes: number, signal: AbortSignal): Promise<void> {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const queue = queueFor(bytes);
      const settle = (): void => {
        queue.delete(waiting);
        clearTimeout(patience);
        signal.removeEventListener('abort', interrupted);
      };
      const waiting: Waiting = {
        bytes,
        admit() {
          settle();
          take(bytes);
          resolve();
        },
      };
      const giveUp = (reason: unknown): void => {
        settle();
        reject(reason);
        admitWaiting(); // those behind it may fit
      };
      const interrupted = (): void => giveUp(signal.reason);
      const patience = setTimeout(() => giveUp(tooMany()), wait);
      signal.addEventListener('abort', interrupted);
      stopWaiting = (): void => {
        if (queue.has(waiting)) giveUp(tooMany());
      };
      queue.add(waiting);
      return promise;
    }

    return {
      async reserve(bytes, signal) {
        if (bytes > limit) throw largerThanAll(limit);
        signal.throwIfAborted();
        if (released) throw tooMany();
        if (queueFor(bytes).size === 0 && fits(own, bytes)) take(bytes);
        else await waitFor(bytes, signal);
      },
      grow(bytes) {
        if (own + bytes > limit) throw largerThanAll(limit);
        if (released || !fits(own, bytes)) throw tooMany();
        take(bytes);
      },
      release() {
        if (released) return;
        released = true;
        stopWaiting();
        change(-own);
        own = 0;
        admitWaiting();
      },
    };
  }

  return { limit, open };
}

const tooMany = (): PrivatemodeError =>
  new PrivatemodeError(
    'too_many_uploads',
    'the bodies of other requests take all the memory there is for them',
  );

const largerThanAll = (limit: number): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${limit} bytes (--max-buffered-bytes)`);
