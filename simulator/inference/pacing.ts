/** Time in the simulated model: waits that end at once when the client leaves. */
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';

/** The longest wait of a timer, 24 days. */
const FOREVER = 2 ** 31 - 1;

/** Waits for `ms`, 0 for one turn of the event loop; rejects with AbortError as soon as `signal` aborts. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (ms === 0) await turn(undefined, { signal });
  else await sleep(Math.min(ms, FOREVER), undefined, { signal });
}

/** Yields the items `intervalMs` apart, by an absolute schedule: drift of timers does not add up. */
export async function* paced<T>(
  items: Iterable<T>,
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<T> {
  const start = performance.now();
  let index = 0;
  for (const item of items) {
    index++;
    const wait = intervalMs === 0 ? 0 : start + index * intervalMs - performance.now();
    if (wait > 0) await pause(wait, signal);
    signal.throwIfAborted();
    yield item;
  }
}
