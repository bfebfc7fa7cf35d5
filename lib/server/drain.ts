import { PrivatemodeError } from '../errors.ts';
import type { Logger } from '../observe/log.ts';
import type { Listener } from './listen.ts';

/** ms that streams get to tell their clients that they were ended. */
const FAREWELL = 2_000;

/**
 * Stops accepting, says how many exchanges run, lets what runs finish for `grace` ms, then aborts `terminate`, on which every exchange that is left
 * tells its client; whoever does not take that within two seconds is cut off. Resolves when all connections are gone.
 */
export async function drain(
  listener: Listener,
  options: {
    readonly active: () => number;
    readonly grace: number;
    readonly terminate: AbortController;
    readonly log: Logger;
  },
): Promise<void> {
  const { active, grace, terminate, log } = options;
  const unfinished = active();
  if (unfinished === 0) log.info({ unfinished }, 'No response is under way');
  else {
    const graceSeconds = grace / 1000;
    log.info({ unfinished, graceSeconds }, 'Waiting for responses to end; a second signal ends them now');
  }
  const drained = listener.drain();
  const patience = setTimeout(() => {
    log.warn({ unfinished: active() }, 'The grace period is over, ending what is left');
    const words = 'the proxy was shut down before the answer was complete';
    terminate.abort(new PrivatemodeError('shutting_down', words));
  }, grace);
  const last = setTimeout(() => listener.destroy(), grace + FAREWELL);
  await drained;
  clearTimeout(patience);
  clearTimeout(last);
}
