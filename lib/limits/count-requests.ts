/** Counts what clients use, in the memory of this process. */
import type { Clock } from '../clock.ts';
import type { CountRecord } from './count-log.ts';
import { type LimitedClient, limitReached, type Permit, type RequestCounts } from './limits.ts';

const WINDOW_MS = 60_000;
const DAY_MS = 86_400_000;

/** What one client has used. */
interface Used {
  /**
   * Times of the client's admissions, oldest first, on the monotonic clock. Those before the index `begin`
   * are out of the window.
   */
  times: number[];
  begin: number;
  /** The UTC day to which `tokens` belong, in days since 1970. */
  day: number;
  tokens: number;
  running: number;
}

export interface RequestCountsOptions {
  /**
   * Its wall clock decides which day it is. The monotonic one measures the minute, which thus keeps its
   * length when somebody sets the wall clock.
   */
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  /**
   * The counts before a restart. Records of earlier days count no tokens, and records older than a minute
   * count no requests.
   */
  readonly before?: Iterable<CountRecord>;
  /**
   * Called with each admission of a client that has requestsPerMinute, and with each release that brings
   * tokens.
   */
  readonly record?: ((record: CountRecord) => void) | undefined;
}

/**
 * Keeps exact counts: `admit` decides and counts in one step. Within any 60 s it admits at most
 * requestsPerMinute requests of a client, those of `before` included. Tokens belong to the day on which their
 * request ends. A time that lies ahead, because the wall clock was set back, counts as now. So no client is
 * refused because of it for longer than a minute, or than today. A client costs memory for as long as
 * something of it counts, 8 bytes for each admission of the last minute.
 */
export function createRequestCounts({
  clock,
  before = [],
  record,
}: RequestCountsOptions): RequestCounts & { remembered(): { clients: string[]; times: number } } {
  const clients = new Map<string, Used>();
  let sweptAt = clock.monotonic();

  function usedBy(name: string, day: number): Used {
    let used = clients.get(name);
    if (used === undefined) {
      used = { times: [], begin: 0, day, tokens: 0, running: 0 };
      clients.set(name, used);
    }
    if (used.day < day) used.tokens = 0;
    used.day = day;
    return used;
  }

  /** Forgets the clients of which nothing counts any more; at most once a minute. */
  function sweep(at: number, day: number): void {
    if (at - sweptAt < WINDOW_MS) return;
    sweptAt = at;
    for (const [name, used] of clients) {
      dropOld(used, at);
      const isIdle = used.running === 0 && used.times.length === 0;
      if (isIdle && (used.tokens === 0 || used.day < day)) clients.delete(name);
    }
  }

  function release(name: string, tokens: number): void {
    const at = clock.now();
    const used = usedBy(name, dayOf(at));
    used.running -= 1;
    if (!(tokens > 0)) return;
    used.tokens += tokens;
    record?.({ client: name, at, requests: 0, tokens });
  }

  const startedAt = clock.now();
  const today = dayOf(startedAt);
  for (const { client, at, requests, tokens } of before) {
    const used = usedBy(client, today);
    if (tokens > 0 && dayOf(at) >= today) used.tokens += tokens;
    const age = Math.max(0, startedAt - at);
    for (let i = 0; i < requests && age < WINDOW_MS; i++) used.times.push(sweptAt - age);
  }
  // Several gateways may have written these records, so their times need not be in order.
  for (const { times } of clients.values()) times.sort((a, b) => a - b);

  return {
    admit({ name, limits }: LimitedClient): Permit {
      const at = clock.now();
      const time = clock.monotonic();
      sweep(time, dayOf(at));
      const used = usedBy(name, dayOf(at));
      dropOld(used, time);
      const { requestsPerMinute, tokensPerDay, maxConcurrent } = limits;
      if (tokensPerDay !== undefined && used.tokens >= tokensPerDay) {
        throw limitReached('tokensPerDay', limits, ((dayOf(at) + 1) * DAY_MS - at) / 1000);
      }
      if (requestsPerMinute !== undefined && used.times.length - used.begin >= requestsPerMinute) {
        // The admission that has to leave the window first. It is not the oldest one if the limit has been
        // lowered.
        const leaves = used.times[used.times.length - requestsPerMinute]! + WINDOW_MS;
        throw limitReached('requestsPerMinute', limits, (leaves - time) / 1000);
      }
      if (maxConcurrent !== undefined && used.running >= maxConcurrent) {
        throw limitReached('maxConcurrent', limits, 0);
      }
      used.running += 1;
      if (requestsPerMinute !== undefined) {
        used.times.push(time);
        record?.({ client: name, at, requests: 1, tokens: 0 });
      }
      let isOver = false;
      return {
        release(tokens) {
          if (isOver) return;
          isOver = true;
          release(name, tokens);
        },
      };
    },
    async close() {},
    /** For tests: the clients that cost memory, and how many times are kept for all of them together. */
    remembered() {
      const times = [...clients.values()].reduce((sum, used) => sum + used.times.length, 0);
      return { clients: [...clients.keys()], times };
    },
  };
}

/**
 * Drops the admissions that are out of the window. Copies the array only when at least half of it is to go.
 */
function dropOld(used: Used, now: number): void {
  const { times } = used;
  while (used.begin < times.length && times[used.begin]! <= now - WINDOW_MS) used.begin += 1;
  if (used.begin === 0 || 2 * used.begin < times.length) return;
  used.times = times.slice(used.begin);
  used.begin = 0;
}

const dayOf = (at: number): number => Math.floor(at / DAY_MS);
