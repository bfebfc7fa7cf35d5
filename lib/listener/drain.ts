/** Ends a listener: responses under way may finish in time, the others end with an error. */
import { type Clock, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Listener } from './listen.ts';

type LogLine = (fields: Readonly<Record<string, unknown>>, message: string) => void;

/** What the listener needs of a log. */
export type ListenerLog = Readonly<Record<'info' | 'warn', LogLine>>;

/**
 * Stops accepting connections, logs how many exchanges are `active`, and lets them finish for `grace` ms, or
 * until `hurry`. Then it aborts `terminate`, upon which the remaining exchanges send their clients an error,
 * and two seconds later it cuts off the clients that have not read that error. Resolves when all connections
 * are gone and `settled` has (each exchange has its log line and its receipt), or two seconds later.
 */
export async function drain(
  listener: Listener,
  options: {
    readonly active: () => number;
    readonly settled: () => Promise<void>;
    readonly grace: number;
    readonly hurry?: AbortSignal;
    readonly terminate: AbortController;
    readonly log: ListenerLog;
    readonly clock: Clock;
  },
): Promise<void> {
  const { active, settled, grace, hurry, terminate, log, clock } = options;
  const { farewell } = clock.times;
  const unfinished = active();
  const waiting = 'Waiting for responses to end; a second signal ends them now';
  const message = unfinished === 0 ? 'No response is under way' : waiting;
  log.info({ unfinished, graceSeconds: grace / 1000 }, message);
  const drained = new AbortController();
  const gone = listener.drain().then(() => drained.abort());
  const enough = AbortSignal.any(hurry === undefined ? [drained.signal] : [drained.signal, hurry]);
  await pause(clock, grace, enough, 'waiting').catch(() => {});
  if (!drained.signal.aborted) {
    log.warn({ unfinished: active() }, 'Ending the responses that are left');
    const why = 'the proxy was shut down before the response was complete';
    terminate.abort(new PrivatemodeError('shutting_down', why));
    await pause(clock, farewell, drained.signal, 'waiting').catch(() => {});
    listener.destroy();
    await gone;
  }
  await Promise.race([settled(), pause(clock, farewell)]);
}
