/** Counts the requests and tokens of clients in the memory of this process. */
import type { Clock } from '../clock.ts';
import type { ClientCounts, CountsAt } from './counts-file.ts';
import { type LimitedClient, limitReached, type Permit, type RequestCounts } from './limits.ts';

const WINDOW_MS = 60_000;
const DAY_MS = 86_400_000;

/** The requests and tokens that one client has used. */
interface Used {
  /** When the client's requests of the last minute were admitted (monotonic clock), oldest first. */
  readonly times: number[];
  /** The UTC day to which `tokens` belong, in days since 1970. */
  day: number;
  tokens: number;
  running: number;
}

interface RequestCountsOptions {
  /** The wall clock decides which day it is. The monotonic clock, which nobody can set, measures minutes. */
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  readonly before?: readonly ClientCounts[] | undefined; // the counts before a restart
  readonly changed?: (counts: CountsAt) => void; // called with counts that must survive a restart
}

/**
 * Keeps exact counts, because `admit` decides and counts in one step. Within any 60 s, `admit` admits at most
 * requestsPerMinute requests of a client, including those in `before`. Tokens count for the day on which
 * their request ends. If the wall clock was set back, admissions in the future count as now, and tokens of a
 * later day for today. So a clock set back refuses a client for at most a minute, or for today.
 */
export function createRequestCounts({ clock, before = [], changed }: RequestCountsOptions): RequestCounts {
  const clients = new Map<string, Used>();
  const [startedAt, startedOn] = [clock.now(), clock.monotonic()];
  for (const { name, tokens, admissions } of before) {
    const times = admissions.map((at) => startedOn - Math.max(0, startedAt - at));
    clients.set(name, { times, day: dayOf(startedAt), tokens, running: 0 });
  }

  /** Returns what a client has used. Tokens of earlier days and admissions over a minute ago are left out. */
  function usedBy(name: string, at: number, time: number): Used {
    const day = dayOf(at);
    const used = clients.get(name) ?? { times: [], day, tokens: 0, running: 0 };
    clients.set(name, used);
    if (used.day < day) used.tokens = 0;
    used.day = day;
    while ((used.times[0] ?? time) <= time - WINDOW_MS) used.times.shift();
    return used;
  }

  /** Returns the counts of all clients. A client without any count is forgotten. */
  function countsAt(now: number): readonly ClientCounts[] {
    const time = clock.monotonic();
    const counts: ClientCounts[] = [];
    for (const name of clients.keys()) {
      const { tokens, times, running } = usedBy(name, now, time);
      if (tokens + times.length + running === 0) clients.delete(name);
      else
        counts.push({ name, tokens, admissions: times.map((admitted) => Math.ceil(now + admitted - time)) });
    }
    return counts;
  }

  return {
    admit({ name, limits }: LimitedClient): Permit {
      const at = clock.now();
      const time = clock.monotonic();
      const used = usedBy(name, at, time);
      const { requestsPerMinute, tokensPerDay, maxConcurrent } = limits;
      if (tokensPerDay !== undefined && used.tokens >= tokensPerDay)
        throw limitReached('tokensPerDay', limits, ((dayOf(at) + 1) * DAY_MS - at) / 1000);
      if (requestsPerMinute !== undefined && used.times.length >= requestsPerMinute) {
        // This admission must become a minute old. After a lowered limit, older admissions may exist.
        const leaves = used.times[used.times.length - requestsPerMinute]! + WINDOW_MS;
        throw limitReached('requestsPerMinute', limits, (leaves - time) / 1000);
      }
      if (maxConcurrent !== undefined && used.running >= maxConcurrent)
        throw limitReached('maxConcurrent', limits, 0);
      used.running += 1;
      if (requestsPerMinute !== undefined) {
        used.times.push(time);
        changed?.(countsAt);
      }
      return {
        release(tokens) {
          const ended = usedBy(name, clock.now(), clock.monotonic());
          ended.running -= 1;
          if (!(tokens > 0)) return;
          ended.tokens += tokens;
          changed?.(countsAt);
        },
      };
    },
  };
}

const dayOf = (at: number): number => Math.floor(at / DAY_MS);
