/** The time of the program: two clocks, timers, and the length of each wait. Tests replace all of them. */
import { TIMES, type Times } from './times.ts';

export interface Clock {
  readonly times: Times;
  /** The wall clock, in ms since 1970, which continues while the machine sleeps. */
  now(): number;
  /**
   * The monotonic clock, in ms since a moment that is the same for all processes of this machine. Nobody can
   * set the monotonic clock, but it stands still while the machine sleeps.
   */
  monotonic(): number;
  /**
   * Runs `then` once, at the earliest after `ms`. Returns a function that cancels the timer. A timer that is
   * `waiting` keeps the process alive, because something waits for the timer. Other timers do not keep the
   * process alive, because nothing needs them once everything else has ended.
   */
  after(ms: number, then: () => void, waiting?: 'waiting'): () => void;
}

/** The time of both clocks at one moment. */
export interface Moment {
  /** The wall clock, in ms since 1970. */
  readonly now: number;
  /** The monotonic clock, in ms. */
  readonly monotonic: number;
}

/** A moment, and how long each wait lasts that begins at this moment. */
export interface Present extends Moment {
  readonly times: Times;
}

export const presentOf = (clock: Pick<Clock, 'now' | 'monotonic' | 'times'>): Present => ({
  now: clock.now(),
  monotonic: clock.monotonic(),
  times: clock.times,
});

/** Makes a clock that reads the operating system's clocks. `times` says how long each wait lasts. */
export const clockWith = (times: Times): Clock => ({
  times,
  now: () => Date.now(),
  monotonic() {
    const [seconds, nanoseconds] = process.hrtime();
    return seconds * 1_000 + Math.floor(nanoseconds / 1_000_000);
  },
  after(ms, then, waiting) {
    const timer = setTimeout(then, ms);
    if (waiting === undefined) timer.unref();
    return () => clearTimeout(timer);
  },
});

export const systemClock: Clock = clockWith(TIMES);

/**
 * Runs `then` repeatedly, with `ms` between two runs. Returns a function that stops the runs, also from
 * within a run. The timer does not keep the process alive.
 */
export function every(clock: Pick<Clock, 'after'>, ms: number, then: () => void): () => void {
  let cancel = (): void => {};
  const next = (): void => {
    cancel = clock.after(ms, () => {
      next();
      then();
    });
  };
  next();
  return () => cancel();
}

const ignore = (): void => {};

/**
 * Holds one wait at a time, and calls `late` if `ms` pass without `refresh`. Waits are cheap for each piece
 * of a stream: a refresh sets no timer, and a new wait sets one only if the current timer fires too late.
 */
export class Deadline {
  readonly #clock: Pick<Clock, 'monotonic' | 'after'>;
  #late = ignore;
  #ms = 0;
  /** When the wait ends, by the monotonic clock; Infinity if there is no wait. */
  #due = Number.POSITIVE_INFINITY;
  /** When the timer fires next, by the monotonic clock; Infinity if no timer is set. */
  #looksAt = Number.POSITIVE_INFINITY;
  #cancelTimer = ignore;

  constructor(clock: Pick<Clock, 'monotonic' | 'after'>) {
    this.#clock = clock;
  }

  /** Begins a wait, which replaces the previous wait. */
  wait(ms: number, late: () => void): this {
    this.#late = late;
    this.#ms = ms;
    const now = this.#clock.monotonic();
    this.#due = now + ms;
    if (this.#due < this.#looksAt) this.#look(now, ms);
    return this;
  }

  /** Restarts the current wait. Does nothing if the wait is over. */
  refresh(): void {
    if (this.#due !== Number.POSITIVE_INFINITY) this.#due = this.#clock.monotonic() + this.#ms;
  }

  /** Ends the wait. The timer stays set for the next wait. */
  rest(): void {
    this.#due = Number.POSITIVE_INFINITY;
    this.#late = ignore; // so that the objects to which `late` refers can be freed
  }

  /** Ends the wait and cancels the timer. */
  cancel(): void {
    this.rest();
    this.#looksAt = Number.POSITIVE_INFINITY;
    this.#cancelTimer();
  }

  /** Checks the time twice (`last`): after a blocked event loop, timers run before sockets are read. */
  #look(now: number, ms: number, last = false): void {
    this.#cancelTimer();
    this.#looksAt = now + ms;
    const look = (): void => {
      this.#looksAt = Number.POSITIVE_INFINITY;
      if (this.#due === Number.POSITIVE_INFINITY) return;
      const at = this.#clock.monotonic();
      const left = this.#due - at;
      if (left > 0) this.#look(at, left);
      else if (!last) this.#look(at, 0, true);
      else {
        const late = this.#late;
        this.rest();
        late();
      }
    };
    this.#cancelTimer = this.#clock.after(ms, look, 'waiting');
  }
}

/** Lets other tasks of the event loop that are due run first. Browsers have no setImmediate. */
export const nextTurn = (): Promise<void> =>
  new Promise((resolve) => {
    if (typeof setImmediate === 'function') setImmediate(resolve);
    else setTimeout(resolve, 0);
  });

/** Resolves after `ms`, or rejects with the reason of `signal` once it aborts. For `waiting`, see Clock. */
export async function pause(
  clock: Pick<Clock, 'after'>,
  ms: number,
  signal?: AbortSignal,
  waiting?: 'waiting',
): Promise<void> {
  signal?.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const cancel = clock.after(ms, resolve, waiting);
  const aborted = (): void => reject(signal?.reason);
  signal?.addEventListener('abort', aborted, { once: true });
  try {
    await promise;
  } finally {
    cancel();
    signal?.removeEventListener('abort', aborted);
  }
}

/**
 * Resolves as `promise` does, or rejects with the reason of `signal`, whichever comes first. A later
 * rejection of the promise is ignored.
 */
export async function untilAborted<T>(promise: T | Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const leave = (): void => reject(signal.reason);
  if (signal.aborted) leave();
  else signal.addEventListener('abort', leave);
  return Promise.race([aborted, promise]).finally(() => signal.removeEventListener('abort', leave));
}

/**
 * Calls `ring` at a time of the wall clock, or when a timer finds that the wall clock was set back. The wall
 * clock jumps when the machine sleeps or somebody sets it, so the alarm reads it repeatedly.
 */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #cancel = (): void => {};

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /** Sets the time of the alarm, which replaces the previous time. */
  set(due: number): void {
    this.#cancel();
    const setAt = this.#clock.now();
    this.#cancel = this.#clock.after(Math.min(Math.max(due - setAt, 0), this.#clock.times.alarmLook), () => {
      const now = this.#clock.now();
      if (now < due && now >= setAt) this.set(due);
      else this.#ring();
    });
  }

  cancel(): void {
    this.#cancel();
  }
}
