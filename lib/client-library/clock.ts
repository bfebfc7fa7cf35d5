/** The time in all runtimes: Node, Bun, Deno, workers, browsers. */
import type { Clock } from '../clock.ts';
import { TIMES } from '../times.ts';

/**
 * A timer keeps a process of Node, Bun or Deno alive only if somebody waits for it (`waiting`). In browsers
 * timers keep nothing alive.
 */
export const runtimeClock: Clock = {
  times: TIMES,
  now: () => Date.now(),
  monotonic: () => performance.timeOrigin + performance.now(),
  after(ms, then, waiting) {
    const timer: unknown = setTimeout(then, ms);
    if (waiting === undefined) unref(timer);
    return () => clearTimeout(timer as NodeJS.Timeout);
  },
};

/** Lets the process end even while the timer is set. */
function unref(timer: unknown): void {
  const { Deno } = globalThis as { Deno?: { unrefTimer(id: unknown): void } };
  if (typeof timer === 'number') Deno?.unrefTimer(timer);
  else (timer as { unref(): void }).unref();
}
