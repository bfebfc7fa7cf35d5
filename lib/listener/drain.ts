/** Ends a listener: responses under way may finish in time, the others end with an error. */
import { type Clock, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Listener } from './listen.ts';

/** What the listener needs of a log. */
export type ListenerLog = Record<'info' | 'warn', (fields: Record<string, number>, message: string) => void>;

/**
 * Stops accepting connections, and lets the `active` exchanges finish for `grace` ms, or until `hurry`. Then
 * aborts `terminate`, upon which the remaining ones send their clients an error, and two seconds later cuts
 * off the clients that have not read it. Resolves when all connections are gone and `settled` has (each
 * exchange has its log line and its receipt), or two seconds later.
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
    await pause(clock, clock.times.farewell, drained.signal, 'waiting').catch(() => {});
    listener.destroy();
    await gone;
  }
  await Promise.race([settled(), pause(clock, clock.times.farewell)]);
}
