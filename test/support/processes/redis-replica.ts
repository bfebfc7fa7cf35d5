/** What replicas of a gateway count in a Redis, and that Redis. */
import { after, before } from 'node:test';
import { systemClock } from '../../../lib/clock.ts';
import { openRedisCounts, type RedisCountsOptions } from '../../../lib/limits/redis-counts.ts';
import { type RedisServer, startRedis } from './redis-server.ts';

/** A key of a client. */
export const keyOf = ({ name }: { readonly name: string }, key: 'tokens' | 'window' | 'running' | '*') =>
  `privatemode-proxy:{${name}}:${key}`;

export type Replica = Awaited<ReturnType<typeof replica>>;

/**
 * One replica's counts; closed when the test ends. `events`: what it reported, in order and without
 * repetitions: reasons of failures, `usable`, and `uncounted` each time.
 */
export async function replica(
  t: { after(end: () => Promise<void>): void },
  url: string,
  more: Partial<RedisCountsOptions> = {},
) {
  const events: string[] = [];
  const note = (event: string): void => {
    if (event !== events.at(-1)) events.push(event);
  };
  const counts = await openRedisCounts({
    ...{ url, ca: [], clock: systemClock, onFailure: 'closed' },
    failed: note,
    usable: () => note('usable'),
    uncounted: () => events.push('uncounted'), // gives a number, as a counter does
    ...more,
  });
  t.after(() => counts.close());
  return { ...counts, events };
}

/**
 * One server for all tests of a suite, to be asked for where the suite is described; it ends after them,
 * behind its replicas.
 */
export function redisOfSuite() {
  const ends: (() => unknown)[] = [];
  let server: RedisServer;
  before(async () => {
    server = await startRedis({ after: (end?: unknown) => void ends.unshift(end as () => unknown) });
  });
  after(async () => {
    for (const end of ends) await end();
  });
  return {
    get url(): string {
      return server.url;
    },
    /** One that lives as long as the server. */
    replica: (more?: Partial<RedisCountsOptions>): Promise<Replica> =>
      replica({ after: (end) => void ends.unshift(end) }, server.url, more),
  };
}
