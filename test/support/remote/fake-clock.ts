import { type Clock, clockWith } from '../../../lib/clock.ts';
import { TIMES, type Times } from '../../../lib/times.ts';

/** The clock of the system, with other times, and another wall clock if `now` is given. */
export const clockOf = ({ now = Date.now, ...times }: Partial<Times> & { now?: () => number }): Clock => ({
  ...clockWith({ ...TIMES, ...times }),
  now,
});

/** A clock whose hands the test turns. */
export interface FakeClock extends Clock {
  /** Lets `ms` pass: timers run when they are due, and what they set off has settled before the next one. */
  advance(ms: number): Promise<void>;
  /** Sets the wall clock without any timer noticing: a machine that slept, or was corrected. */
  jump(ms: number): void;
  /** Drops every timer: a runtime that ends what a request began together with that request. */
  drop(): void;
  /** Timers that are set; `waiting` counts those that would keep a process alive. */
  timers(): { all: number; waiting: number };
}

interface Timer {
  readonly at: number;
  readonly waiting: boolean;
  readonly run: () => void;
}

/** Lets promises and what they start settle. Real I/O takes longer. */
export async function settle(turns = 8): Promise<void> {
  for (let i = 0; i < turns; i++) await new Promise(setImmediate);
}

export function createFakeClock(start = Date.parse('2026-12-01T00:00:00Z'), times: Times = TIMES): FakeClock {
  let wall = start;
  // Timers go by a clock of their own, as in Node: the monotonic one.
  let elapsed = 0;
  const timers = new Set<Timer>();
  return {
    times,
    now: () => wall,
    monotonic: () => elapsed,
    after(ms, run, waiting) {
      const timer = { at: elapsed + ms, waiting: waiting !== undefined, run };
      timers.add(timer);
      return () => timers.delete(timer);
    },
    async advance(ms) {
      const end = elapsed + ms;
      await settle();
      for (;;) {
        const [next] = [...timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at);
        if (next === undefined) break;
        timers.delete(next);
        wall += next.at - elapsed;
        elapsed = next.at;
        next.run();
        await settle();
      }
      wall += end - elapsed;
      elapsed = end;
    },
    jump(ms) {
      wall += ms;
    },
    drop: () => timers.clear(),
    timers: () => ({ all: timers.size, waiting: [...timers].filter(({ waiting }) => waiting).length }),
  };
}
