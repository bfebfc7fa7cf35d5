/** Time as the session sees it, so that tests can turn the hands. */
export interface Clock {
  /** Wall clock, ms since 1970: it goes on while the machine sleeps. */
  now(): number;
  /**
   * Monotonic clock, ms since some moment that is the same for all processes of this machine: nobody can set it, but it
   * stands still while the machine sleeps.
   */
  monotonic(): number;
  /**
   * Runs `then` once, `ms` from now at the earliest; returns what cancels it. Only a `waiting` timer keeps the process
   * alive: somebody waits for it, while the others serve nobody once everything else has ended.
   */
  after(ms: number, then: () => void, waiting?: 'waiting'): () => void;
}

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

/** No timer is longer: the wall clock may have jumped meanwhile, because the machine slept or was corrected. */
const LONGEST_SLEEP = 30_000;

/** Calls at a time of the wall clock, or as soon as a timer notices that the clock was turned back. */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #cancel = (): void => {};
  /** When it was set to last. */
  due = Number.POSITIVE_INFINITY;

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /** In the place of the time that it was set to before. */
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
