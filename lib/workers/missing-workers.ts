/** The condition workers_missing: workers that should accept connections, and do not. */
import type { Clock } from '../clock.ts';
import type { PrivatemodeError } from '../errors.ts';
import type { ConditionSink } from '../observe/conditions.ts';

/**
 * Keeps the condition for `count` workers. It begins at once if none listens, else after the time that a new
 * worker takes, and ends when all listen. The condition names the last reason why a worker could not start.
 */
export function watchMissingWorkers(conditions: ConditionSink, count: number, clock: Clock) {
  let listening = 0;
  let failure: PrivatemodeError | undefined;
  let cancel: (() => void) | undefined;
  let isMissing = false;

  function update(): void {
    if (listening === count) {
      cancel?.();
      cancel = undefined;
      failure = undefined;
      isMissing = false;
      conditions.clear('workers_missing');
      return;
    }
    cancel ??= clock.after(clock.times.workersMissing, () => {
      isMissing = true;
      update();
    });
    isMissing ||= listening === 0;
    if (!isMissing) return;
    const why = failure === undefined ? '' : `: ${failure.code}: ${failure.message}`;
    conditions.set('workers_missing', `${listening} of ${count} listen${why}`, {
      severity: listening === 0 ? 'critical' : 'warning',
      remedy: failure?.remedy,
    });
  }

  return {
    /** Called with the number of workers that listen, whenever it may have changed. */
    note(listen: number): void {
      listening = listen;
      update();
    },
    /** Called with the reason why a worker could not start. */
    failed(error: PrivatemodeError): void {
      failure = error;
      update();
    },
    close: (): void => cancel?.(),
  };
}
