/** The wall clock, the monotonic clock and the timers of a session. Tests replace them. */
export interface Clock {
  /** Wall clock, ms since 1970: it goes on while the machine sleeps. */
  now(): number;
  /**
   * Monotonic clock, in ms since some moment that is the same for all processes of this machine. Nobody can
   * set it, but it stands still while the machine sleeps.
   */
  monotonic(): number;
  /**
   * Runs `then` once, at the earliest after `ms`. Returns a function that cancels the timer. Only a `waiting`
   * timer keeps the process alive, because somebody waits for it. Once everything else has ended, nobody
   * needs the other timers.
   */
  after(ms: number, then: () => void, waiting?: 'waiting'): () => void;
}

/** What both clocks show at one moment. */
export interface Moment {
  /** Wall clock, ms since 1970. */
  readonly now: number;
  /** Monotonic clock, ms. */
  readonly monotonic: number;
}

export const momentOf = (clock: Pick<Clock, 'now' | 'monotonic'>): Moment => ({
  now: clock.now(),
  monotonic: clock.monotonic(),
});

export const systemClock: Clock = {
  now: Date.now,
  monotonic: () => Number(process.hrtime.bigint() / 1_000_000n),
  after(ms, then, waiting) {
    const timer = setTimeout(then, ms);
    if (waiting === undefined) timer.unref();
    return () => clearTimeout(timer);
  },
};

/** Resolves after `ms`, or rejects with the signal's reason. `waiting` as for Clock.after. */
export async function pause(
  clock: Clock,
  ms: number,
  signal: AbortSignal,
  waiting?: 'waiting',
): Promise<void> {
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const cancel = clock.after(ms, resolve, waiting);
  const aborted = (): void => reject(signal.reason);
  signal.addEventListener('abort', aborted, { once: true });
  try {
    await promise;
  } finally {
    cancel();
    signal.removeEventListener('abort', aborted);
  }
}

/**
 * The longest timer of an alarm, in ms. After it the alarm reads the wall clock again, which may have jumped
 * because the machine slept or somebody corrected the clock.
 */
const LONGEST_SLEEP = 30_000;

/** Calls `ring` at a time of the wall clock, or as soon as a timer finds that this clock was turned back. */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #cancel = (): void => {};
  /** The time that was set last: wall clock, ms since 1970; Infinity before the first `set`. */
  due = Number.POSITIVE_INFINITY;

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /** Replaces the time that was set before. */
  set(due: number): void {
    this.#cancel();
    this.due = due;
    const setAt = this.#clock.now();
    this.#cancel = this.#clock.after(Math.min(Math.max(due - setAt, 0), LONGEST_SLEEP), () => {
      const now = this.#clock.now();
      if (now < due && now >= setAt) this.set(due);
      else this.#ring();
    });
  }

  cancel(): void {
    this.#cancel();
  }
}
