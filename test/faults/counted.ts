/** The counters of a proxy as plain values, and what was added to them since. */
import type { Stack } from '../support/stack.ts';
import type { Counted } from './cells.ts';

export interface Snapshot {
  readonly counters: Counted;
  /** How many lines there were in the log. */
  readonly logLines: number;
}

const plain = ({ proxy }: Pick<Stack, 'proxy'>): Counted =>
  Object.fromEntries(
    Object.entries(proxy.counters).map(([name, value]) => [
      name,
      value instanceof Map ? Object.fromEntries(value) : (value as number),
    ]),
  );

export const snapshot = (stack: Stack): Snapshot => ({
  counters: plain(stack),
  logLines: stack.logLines.length,
});

/** What was added; counters that stayed are left out. */
export function countersSince({ counters }: Snapshot, stack: Stack): Record<string, Counted[string]> {
  const added: Record<string, Counted[string]> = {};
  for (const [name, now] of Object.entries(plain(stack))) {
    const before = counters[name];
    if (typeof now === 'number') {
      if (now !== before) added[name] = now - Number(before);
      continue;
    }
    const counts = Object.entries(now)
      .map(([key, count]) => [key, count - ((before as Record<string, number>)[key] ?? 0)] as const)
      .filter(([, count]) => count !== 0);
    if (counts.length > 0) added[name] = Object.fromEntries(counts);
  }
  return added;
}
