/** A line of requests that wait for something, each for a limited time. */
import type { Clock } from '../clock.ts';

/** One entry of a line. */
export interface Waiting<Wanted, Place> {
  readonly wanted: Wanted;
  /** Resolves with the place, or rejects with the reason of the refusal. */
  readonly place: Promise<Place>;
  readonly enter: (place: Place) => void;
  /** Refuses the entry, unless it has left the line already. */
  readonly refuse: (reason: unknown) => void;
}

/** The entries that wait for something, in order of arrival. */
export class WaitingLine<Wanted, Place> extends Set<Waiting<Wanted, Place>> {
  /**
   * Adds an entry behind all others. It is refused with the error of `tooLate` after `wait` ms, and with the
   * reason of `signal` when that aborts. `refused` is called whenever it is refused.
   */
  join(
    wanted: Wanted,
    {
      clock,
      signal,
      wait,
      tooLate,
      refused,
    }: {
      readonly clock: Clock;
      readonly signal: AbortSignal;
      readonly wait: number;
      readonly tooLate: () => Error;
      readonly refused: () => void;
    },
  ): Waiting<Wanted, Place> {
    const { promise: place, resolve, reject } = Promise.withResolvers<Place>();
    const leave = (): boolean => {
      inTime();
      signal.removeEventListener('abort', interrupted);
      return this.delete(waiting);
    };
    const refuse = (reason: unknown): void => {
      if (!leave()) return;
      reject(reason);
      refused();
    };
    const enter = (given: Place): void => {
      if (leave()) resolve(given);
    };
    const interrupted = (): void => refuse(signal.reason);
    const waiting = { wanted, place, enter, refuse };
    const inTime = clock.after(wait, () => refuse(tooLate()), 'waiting');
    signal.addEventListener('abort', interrupted);
    this.add(waiting);
    return waiting;
  }
}
