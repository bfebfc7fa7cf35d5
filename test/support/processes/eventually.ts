import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';

/**
 * ms until a wait fails: far beyond what any takes, so that no load on the machine decides. The mutation
 * check shortens it, because there most waits are in vain.
 */
const PATIENCE = Number(process.env['TEST_PATIENCE'] ?? 120_000);
/** ms that one look counts for at most: after a pause of the machine, timers run before sockets are read. */
const MOST_OF_ONE_LOOK = 250;

/**
 * Asks `holds` every `interval` ms until it gives something other than false and undefined, and resolves with
 * that. Fails after `ms` and says `what` it waited for. For what nothing announces: where there is an event,
 * await it.
 */
export async function eventually<T>(
  what: string | (() => string),
  holds: () => T | Promise<T>,
  ms = PATIENCE,
  interval = 5,
): Promise<Exclude<T, false | undefined>> {
  let left = ms;
  for (let asked = Date.now(); ; await delay(interval)) {
    const found = await holds();
    if (found !== false && found !== undefined) return found as Exclude<T, false | undefined>;
    const now = Date.now();
    left -= Math.min(now - asked, MOST_OF_ONE_LOOK);
    asked = now;
    if (left < 0) assert.fail(`waited ${ms} ms in vain for ${typeof what === 'string' ? what : what()}`);
  }
}
