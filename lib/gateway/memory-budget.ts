import { PrivatemodeError } from '../errors.ts';
import { WaitingLine } from '../limits/waiting-line.ts';
import type { Counters } from '../observe/counters.ts';

/** The memory for the bodies of all requests together, or of all responses that are kept whole. */
export type MemoryBudget = ReturnType<typeof createBudget>;

/** The part of the budget that one request or response has. */
export type Reservation = ReturnType<MemoryBudget['open']>;

/** Memory that is reserved for a translated response, and how much. */
export interface HeldRoom {
  readonly reservation: Reservation | undefined;
  readonly bytes: number;
}

interface BudgetOptions {
  /** Gets the number of reserved bytes. */
  readonly counters: Pick<Counters, 'bufferedBytes'>;
  /** ms that a body waits for room. Default 10 s. */
  readonly wait?: number;
}

/** What refuses a body that finds no room, and one for which there will never be any. */
interface Refusals {
  readonly tooMany: () => PrivatemodeError;
  readonly largerThanAll: (limit: number) => PrivatemodeError;
}

/** ms that a body waits for room. */
const WAIT = 10_000;
/** Bytes up to which a body counts as small. */
const SMALL = 1024 * 1024;
/** Share of the limit; the rest is for small bodies, so that a few large ones that trickle in cannot shut out everybody. */
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
  { counters, wait = WAIT }: BudgetOptions,
  { tooMany, largerThanAll }: Refusals,
) {
  // Each in order of arrival; a small body need not wait behind a large one.
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
      const waiting = lineFor(own + bytes).join(
        { fits: () => fits(own, bytes), take: () => take(bytes) },
        { signal, wait, tooLate: tooMany, refused: admitWaiting }, // those behind it may fit
      );
      stopWaiting = (): void => waiting.refuse(tooMany());
      return waiting.place;
    }

    return {
      /**
       * Reserves so many bytes, or so many more; waits its turn where there is no room. Rejects with the codes of the budget, above the
       * limit at once and otherwise after 10 s, and with the reason of `signal`. To be called again only once it has resolved.
       */
      async reserve(bytes: number, signal: AbortSignal): Promise<void> {
        if (own + bytes > limit) throw largerThanAll(limit);
        signal.throwIfAborted();
        if (released) throw tooMany();
        if (lineFor(own + bytes).size === 0 && fits(own, bytes)) take(bytes);
        else await waitFor(bytes, signal);
      },
      /** Reserves more and never waits, since two could wait for each other. Throws the same codes. */
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
