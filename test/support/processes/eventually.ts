import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';

/** ms until a wait fails: far beyond what any takes, so that no load on the machine decides. */
const PATIENCE = 20_000;

/**
 * Asks `holds` every `interval` ms until it gives something other than false and undefined, and resolves with that. Fails after `ms` and
 * says `what` it waited for. For what nothing announces: where there is an event, await it.
 */
export async function eventually<T>(
  what: string | (() => string),
  holds: () => T | Promise<T>,
  ms = PATIENCE,
  interval = 5,
): Promise<Exclude<T, false | undefined>> {
  for (const deadline = Date.now() + ms; ; await delay(interval)) {
    const found = await holds();
    if (found !== false && found !== undefined) return found as Exclude<T, false | undefined>;
    if (Date.now() > deadline)
      assert.fail(`waited ${ms} ms in vain for ${typeof what === 'string' ? what : what()}`);
  }
}
