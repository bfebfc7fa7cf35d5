/**
 * What a worker reports of the operator's keys (lib/observe/own-key.ts). Each response says something about a
 * key, but the worker reports only what differs from the last report about it, which may be another worker's.
 */
import type { OwnKeyEvent } from '../observe/own-key.ts';

export function createOwnKeyReports(send: (event: OwnKeyEvent) => void) {
  /** The last report about each key, by client; undefined: the key of --api-key. */
  const last = new Map<string | undefined, string>();

  /** Takes a report. Returns whether it differs from the last one. */
  function note(event: OwnKeyEvent): boolean {
    if (!('client' in event)) {
      last.clear();
      return true;
    }
    const report = `${event.type} ${event.key}`;
    const isNew = last.get(event.client) !== report;
    last.set(event.client, report);
    return isNew;
  }

  return {
    observe: (event: OwnKeyEvent): void => (note(event) ? send(event) : undefined),
    /** Takes each report of all workers, in the order in which the primary read them. */
    reported: (event: OwnKeyEvent): unknown => note(event),
    /** From now on each key is reported again: the primary may have judged another one since. */
    forget: (): void => last.clear(),
  };
}
