/**
 * Ends a listener: responses under way may finish in time; the others get an error and lose their connection.
 */
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Logger } from '../observe/log.ts';
import type { Listener } from './listen.ts';

/**
 * Stops accepting connections, logs how many exchanges run, and lets them finish for `grace` ms, or until
 * `hurry`. Then it aborts `terminate`, upon which the remaining exchanges send their clients an error. Two
 * seconds later it cuts off the clients that have not read that error. Resolves when all connections are gone
 * and their exchanges have settled; for the latter it waits at most two seconds.
 */
export async function drain(
  listener: Listener,
  options: {
    readonly active: () => number;
    /** Resolves when each exchange has its log line and its receipt. */
    readonly settled: () => Promise<void>;
    readonly grace: number;
    readonly hurry?: AbortSignal;
    readonly terminate: AbortController;
    readonly log: Logger;
    readonly clock: Clock;
  },
): Promise<void> {
  const { active, settled, grace, hurry, terminate, log, clock } = options;
  const { farewell } = clock.times;
  const unfinished = active();
  if (unfinished === 0) log.info({ unfinished }, 'No response is under way');
  else {
    const graceSeconds = grace / 1000;
    log.info({ unfinished, graceSeconds }, 'Waiting for responses to end; a second signal ends them now');
  }
  const drained = listener.drain();
  let keepConnections = (): void => {};
  const endResponses = (): void => {
    if (terminate.signal.aborted) return;
    const why = hurry?.aborted ? 'A second signal came' : 'The grace period is over';
    log.warn({ unfinished: active() }, `${why}, ending what is left`);
    const message = 'the proxy was shut down before the response was complete';
    terminate.abort(new PrivatemodeError('shutting_down', message));
    keepConnections = clock.after(farewell, () => listener.destroy(), 'waiting');
  };
  const keepResponses = clock.after(grace, endResponses, 'waiting');
  if (hurry?.aborted) endResponses();
  else hurry?.addEventListener('abort', endResponses);
  await drained;
  hurry?.removeEventListener('abort', endResponses);
  keepResponses();
  keepConnections();
  const { promise: late, resolve } = Promise.withResolvers<void>();
  const inTime = clock.after(farewell, resolve, 'waiting');
  await Promise.race([settled(), late]);
  inTime();
}
