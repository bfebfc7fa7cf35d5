/** Who waits in a line. */
export interface Waiting<Wanted, Place> {
  readonly wanted: Wanted;
  /** Rejects with what it was refused with. */
  readonly place: Promise<Place>;
  readonly enter: (place: Place) => void;
  /** Does nothing to one that has left the line already. */
  readonly refuse: (reason: unknown) => void;
}

/** Those who wait for something, in order of arrival. */
export class WaitingLine<Wanted, Place> extends Set<Waiting<Wanted, Place>> {
  /**
   * Waits behind all others. Is refused with what `tooLate` says after `wait` ms, and with the reason of `signal`; `refused` is called
   * then.
   */
  join(
    wanted: Wanted,
    {
      signal,
      wait,
      tooLate,
      refused,
    }: {
      readonly signal: AbortSignal;
      readonly wait: number;
      readonly tooLate: () => Error;
      readonly refused: () => void;
    },
  ): Waiting<Wanted, Place> {
    const { promise: place, resolve, reject } = Promise.withResolvers<Place>();
    const leave = (): boolean => {
      clearTimeout(patience);
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
    const patience = setTimeout(() => refuse(tooLate()), wait);
    signal.addEventListener('abort', interrupted);
    this.add(waiting);
    return waiting;
  }
}
