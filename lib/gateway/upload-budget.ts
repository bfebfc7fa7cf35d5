import { PrivatemodeError } from '../errors.ts';
import type { Counters } from '../observe/counters.ts';

/** The memory for the bodies of all requests together. */
export type UploadBudget = ReturnType<typeof createUploadBudget>;

/** The part of the budget that one request has. */
export type UploadReservation = ReturnType<UploadBudget['open']>;

/** ms that a body waits for room. */
const WAIT = 10_000;
/** Bytes up to which a body counts as small. */
const SMALL = 1024 * 1024;
/** Share of the limit; the rest is for small bodies, so that a few large ones that trickle in cannot shut out everybody. */
const FOR_LARGE = 7 / 8;

interface Waiting {
  readonly bytes: number;
  readonly admit: () => void;
}

/** A budget of `limit` bytes; `counters.bufferedBytes` is what of it is reserved. */
export function createUploadBudget(
  limit: number,
  { counters, wait = WAIT }: { readonly counters: Pick<Counters, 'bufferedBytes'>; readonly wait?: number },
) {
  // Each in order of arrival; a small body need not wait behind a large one.
  const small = new Set<Waiting>();
  const large = new Set<Waiting>();
  const queueFor = (bytes: number): Set<Waiting> => (bytes <= SMALL ? small : large);

  /** Whether a request that has `own` bytes may reserve `bytes` more. */
  const fits = (own: number, bytes: number): boolean => {
    const { bufferedBytes } = counters;
    const alone = bufferedBytes === own;
    return bufferedBytes + bytes <= (alone || own + bytes <= SMALL ? limit : limit * FOR_LARGE);
  };

  const admitWaiting = (): void => {
    for (const queue of [small, large]) {
      for (const waiting of queue) {
        if (!fits(0, waiting.bytes)) break;
        waiting.admit();
      }
    }
  };

  /** For one request; reserves nothing yet. */
  function open() {
    let own = 0;
    let released = false;
    let stopWaiting = (): void => {};

    const take = (bytes: number): void => {
      own += bytes;
      counters.bufferedBytes += bytes;
    };

    function waitFor(bytes: number, signal: AbortSignal): Promise<void> {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const queue = queueFor(bytes);
      const waiting: Waiting = {
        bytes,
        admit() {
          queue.delete(waiting);
          take(bytes);
          resolve();
        },
      };
      const giveUp = (reason: unknown): void => {
        if (!queue.delete(waiting)) return;
        reject(reason);
        admitWaiting(); // those behind it may fit
      };
      const interrupted = (): void => giveUp(signal.reason);
      const patience = setTimeout(() => giveUp(tooMany()), wait);
      signal.addEventListener('abort', interrupted);
      stopWaiting = (): void => giveUp(tooMany());
      queue.add(waiting);
      return promise.finally(() => {
        clearTimeout(patience);
        signal.removeEventListener('abort', interrupted);
      });
    }

    return {
      /**
       * Reserves a body of known length, once; waits its turn where there is no room. Rejects with body_too_large above the limit,
       * with too_many_uploads after 10 s, and with the reason of `signal`.
       */
      async reserve(bytes: number, signal: AbortSignal): Promise<void> {
        if (bytes > limit) throw largerThanAll(limit);
        signal.throwIfAborted();
        if (released) throw tooMany();
        if (queueFor(bytes).size === 0 && fits(own, bytes)) take(bytes);
        else await waitFor(bytes, signal);
      },
      /** Reserves more for a body of unknown length. Never waits, since two could wait for each other. Throws the same codes. */
      grow(bytes: number): void {
        if (own + bytes > limit) throw largerThanAll(limit);
        if (released || !fits(own, bytes)) throw tooMany();
        take(bytes);
      },
      /** Gives everything back and admits those who wait. May be called more than once. */
      release(): void {
        if (released) return;
        released = true;
        stopWaiting();
        counters.bufferedBytes -= own;
        own = 0;
        admitWaiting();
      },
    };
  }

  return { open };
}

const tooMany = (): PrivatemodeError =>
  new PrivatemodeError(
    'too_many_uploads',
    'the bodies of other requests take all the memory there is for them',
  );

const largerThanAll = (limit: number): PrivatemodeError =>
  new PrivatemodeError('body_too_large', `the body is larger than ${limit} bytes (--max-buffered-bytes)`);
