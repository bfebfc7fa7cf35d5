/** Limits the memory that all request bodies, or all responses that are kept whole, take together. */
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { WaitingLine } from '../limits/waiting-line.ts';
import type { Counters } from '../observe/counters.ts';

/** The memory for the bodies of all requests together, or of all responses that are kept whole. */
export type MemoryBudget = ReturnType<typeof createBudget>;

/** The part of the budget that one request or response has. */
export type Reservation = ReturnType<MemoryBudget['open']>;

/** The reservation of a translated response, and the bytes reserved so far. */
export interface HeldRoom {
  readonly reservation: Reservation | undefined;
  readonly bytes: number;
}

interface BudgetOptions {
  /** The budget keeps the number of reserved bytes here. */
  readonly counters: Pick<Counters, 'bufferedBytes'>;
  readonly clock: Clock;
}

/**
 * Makes the errors: `tooMany` for a body that finds no room, `largerThanAll` for a body that exceeds the
 * whole limit.
 */
interface Refusals {
  readonly tooMany: () => PrivatemodeError;
  readonly largerThanAll: (limit: number) => PrivatemodeError;
}

/** Bytes up to which a body counts as small. */
const SMALL = 1024 * 1024;
/**
 * The share of the limit that large bodies may fill. The rest is for small bodies, so that a few large ones
 * that arrive slowly cannot shut out everybody.
 */
const FOR_LARGE = 7 / 8;

/** A body that waits for memory. */
interface Wanted {
  readonly fits: () => boolean;
  readonly take: () => void;
}

/** A budget of `limit` bytes for request bodies: refuses with too_many_uploads and body_too_large. */
export const createUploadBudget = (limit: number, options: BudgetOptions): MemoryBudget =>
  createBudget(limit, options, {
    tooMany: () =>
      new PrivatemodeError(
        'too_many_uploads',
        'the bodies of other requests use all the memory reserved for bodies',
      ),
    largerThanAll: (most) =>
      new PrivatemodeError('body_too_large', `the body is larger than ${most} bytes (--max-buffered-bytes)`),
  });

/** A budget of `limit` bytes for whole responses: refuses with too_many_responses and response_too_large. */
export const createResponseBudget = (limit: number, options: BudgetOptions): MemoryBudget =>
  createBudget(limit, options, {
    tooMany: () =>
      new PrivatemodeError('too_many_responses', 'other responses use all the memory reserved for responses'),
    largerThanAll: (most) =>
      new PrivatemodeError(
        'response_too_large',
        `the response is larger than ${most} bytes (--max-buffered-bytes)`,
      ),
  });

function createBudget(
  limit: number,
  { counters, clock }: BudgetOptions,
  { tooMany, largerThanAll }: Refusals,
) {
  // Each line is in order of arrival. There are two, because a small body need not wait behind a large one.
  const small = new WaitingLine<Wanted, void>();
  const large = new WaitingLine<Wanted, void>();
  const lineFor = (bytes: number): WaitingLine<Wanted, void> => (bytes <= SMALL ? small : large);

  /** Whether a request that has `own` bytes may reserve `bytes` more. */
  const fits = (own: number, bytes: number): boolean => {
    const { bufferedBytes } = counters;
    const alone = bufferedBytes === own;
    return bufferedBytes + bytes <= (alone || own + bytes <= SMALL ? limit : limit * FOR_LARGE);
  };

  const admitWaiting = (): void => {
    for (const line of [small, large]) {
      for (const { wanted, enter } of line) {
        if (!wanted.fits()) break;
        wanted.take();
        enter();
      }
    }
  };

  /** Opens the reservation of one request or response, with no bytes yet. */
  function open() {
    let own = 0;
    let released = false;
    let stopWaiting = (): void => {};

    const take = (bytes: number): void => {
      own += bytes;
      counters.bufferedBytes += bytes;
    };

    function waitFor(bytes: number, signal: AbortSignal): Promise<void> {
      const waiting = lineFor(own + bytes).join(
        { fits: () => fits(own, bytes), take: () => take(bytes) },
        // Those behind may fit.
        { signal, clock, wait: clock.times.memoryWait, tooLate: tooMany, refused: admitWaiting },
      );
      stopWaiting = (): void => waiting.refuse(tooMany());
      return waiting.place;
    }

    return {
      /**
       * Reserves `bytes` more bytes, and waits its turn if there is no room. Rejects with the codes of the
       * budget: at once if the total exceeds the limit or the reservation was released, otherwise after 10 s.
       * Rejects with the reason of `signal`. Call it again only once it has resolved.
       */
      async reserve(bytes: number, signal: AbortSignal): Promise<void> {
        if (own + bytes > limit) throw largerThanAll(limit);
        signal.throwIfAborted();
        if (released) throw tooMany();
        if (lineFor(own + bytes).size === 0 && fits(own, bytes)) take(bytes);
        else await waitFor(bytes, signal);
      },
      /**
       * Reserves `bytes` more bytes without waiting, because two bodies could wait for each other. Throws the
       * same codes.
       */
      grow(bytes: number): void {
        if (own + bytes > limit) throw largerThanAll(limit);
        if (released || !fits(own, bytes)) throw tooMany();
        take(bytes);
      },
      /** Gives all bytes back, and lets in the bodies that wait and now fit. May be called more than once. */
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
