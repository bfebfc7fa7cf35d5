/** The counts of clients in a Redis or Valkey that several replicas share (--limits-store). */
import { randomBytes } from 'node:crypto';
import { PrivatemodeError } from '../errors.ts';
import { isCount, type LimitedClient, limitReached, type Permit, type RequestCounts } from './limits.ts';
import { openRedisConnection, type Run, type StoreError, script } from './redis-connection.ts';

export interface RedisCountsOptions {
  /** redis:// or rediss://, with user, password and database where there are any. */
  readonly url: string;
  /** While the store cannot be used, `closed` refuses requests, and `open` admits them and counts nothing. */
  readonly onFailure: 'closed' | 'open';
  /** The store cannot be used; called once until it can be again. Neither URL nor password is in the error, nor in the reason. */
  readonly failed: (error: PrivatemodeError, reason: string) => void;
  /** It can be again. */
  readonly recovered: () => void;
  /** It can be used, for the first time. */
  readonly connected?: (() => void) | undefined;
  /** A request was admitted that is not counted (`open`). */
  readonly uncounted: () => void;
  /** The keys of that client cannot be used, while the store can; called once until they can be again. */
  readonly unusable?: (client: string, reason: string) => void;
  readonly usable?: (client: string) => void;
  /** ms between two looks at the store, so that a gateway which nobody uses notices that it is away. Default: 50 s. */
  readonly lookEvery?: number;
  /** Authorities for rediss://, PEM; default: those of Node. */
  readonly ca?: readonly string[];
  /** ms since 1970. Tells only whether the day of late tokens is over; all else goes by the clock of the store. */
  readonly now?: () => number;
  /** ms after which the store frees the place of a request whose replica no longer says that it runs; it says so three times as often. */
  readonly lease?: number;
}

/**
 * Three keys for each client, which all expire. The braces make a cluster keep them together.
 * tokens: integer, of this day. window: sorted set, the requests of the last 60 s by the ms when they were admitted. running: sorted
 * set, the requests that run by the ms when their lease ends.
 */
const keysOf = (client: string): readonly string[] =>
  ['tokens', 'window', 'running'].map((key) => `privatemode-proxy:{${client}}:${key}`);

/** The clock of the store, so that replicas with different clocks agree. All times in ms. */
const CLOCK = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local midnight = (math.floor(now / 86400000) + 1) * 86400000
`;

/**
 * The tokens that are counted under a key. Where something else stands there, the error is that of a key of another type: an error of
 * another kind would speak of the whole store.
 */
const TOKENS = `
local tokens = redis.call('GET', KEYS[1]) or '0'
if not string.match(tokens, '^-?%d+$') or #tokens > 18 then return redis.error_reply('WRONGTYPE no number') end
`;

/**
 * Arguments: id, tokens per day, requests per minute, most at a time (-1: no limit, nothing compared), lease. Replies with the number of the limit that is
 * reached, as in REACHED, or 0, and the seconds to wait.
 */
const ADMIT = script(
  `${CLOCK}
local id, lease = ARGV[1], tonumber(ARGV[5])
local tokensPerDay, requestsPerMinute, maxConcurrent = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if tokensPerDay >= 0 then
  ${TOKENS}
  if tonumber(tokens) >= tokensPerDay then return {1, math.ceil((midnight - now) / 1000)} end
end
if requestsPerMinute >= 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 60000)
  -- What lies ahead, because the clock of the store was set back, counts as now: nobody waits for longer than a minute.
  for _, ahead in ipairs(redis.call('ZRANGE', KEYS[2], '(' .. now, '+inf', 'BYSCORE')) do
    redis.call('ZADD', KEYS[2], now, ahead)
  end
  local count = redis.call('ZCARD', KEYS[2])
  if count >= requestsPerMinute then
    local at = count - requestsPerMinute
    local first = redis.call('ZRANGE', KEYS[2], at, at, 'WITHSCORES')[2]
    return {2, math.ceil(((first or now) + 60000 - now) / 1000)}
  end
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
if maxConcurrent >= 0 and redis.call('ZCARD', KEYS[3]) >= maxConcurrent then return {3, 1} end
if requestsPerMinute >= 0 then
  redis.call('ZADD', KEYS[2], now, id)
  redis.call('PEXPIRE', KEYS[2], 60000)
end
redis.call('ZADD', KEYS[3], now + lease, id)
redis.call('PEXPIRE', KEYS[3], lease)
return {0, 0}`,
  (reply) => Array.isArray(reply) && reply.length === 2 && reply.every(isCount) && reply[0]! < REACHED.length,
);

/** Arguments: id, tokens, how it is released (Release.how). */
const RELEASE = script(
  `${CLOCK}
local id, added, how = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local held = redis.call('ZREM', KEYS[3], id)
if how == 'cancel' then redis.call('ZREM', KEYS[2], id) end
if added > 0 and (how ~= 'again' or held == 1) then
  ${TOKENS}
  redis.call('INCRBY', KEYS[1], ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], midnight)
end
return held`,
  isCount,
);

/** Arguments: lease, ids. Restores them where the store has lost them. */
const RENEW = script(
  `${CLOCK}
local lease = tonumber(ARGV[1])
for i = 2, #ARGV do redis.call('ZADD', KEYS[3], now + lease, ARGV[i]) end
return redis.call('PEXPIRE', KEYS[3], lease)`,
  isCount,
);

/** By the number with which ADMIT replies. */
const REACHED = [undefined, 'tokensPerDay', 'requestsPerMinute', 'maxConcurrent'] as const;

/** A place to give back, which the store may not have heard of yet. */
interface Release {
  readonly client: string;
  readonly id: string;
  readonly tokens: number;
  /** UTC, since 1970. */
  readonly day: number;
  /**
   * `first`: gives the place back and counts the tokens. `again`: the same once more, where it is not known whether the store did it;
   * counts the tokens only with the place. `cancel`: as if the request had never been.
   */
  how: 'first' | 'again' | 'cancel';
}

const LEASE_MS = 60_000;
/** With the time for the reply, a store that is silently gone is noticed within a minute. */
const LOOK_MS = 50_000;
const DAY_MS = 86_400_000;
/** Releases that wait for a store that is away; the oldest give way, and their leases run out. */
const MOST_OWED = 10_000;
/** So many of them go out at a time. */
const BATCH = 500;
/** Tokens of one request; beyond it is nonsense, and many of them would leave the range of the store's integers. */
const MOST_TOKENS = 1e12;
const RETRY_SECONDS = 2;
/** No client has this name; a new connection is tried on it. */
const NOBODY = '';
/** Compared with what is counted, but never reached. */
const NO_LIMIT = 1e15;

/**
 * Counts in a store. One that cannot be reached, now or later, is tried again for ever, and does not keep this from resolving. Throws
 * config_invalid where the URL is none.
 */
export async function openRedisCounts(options: RedisCountsOptions): Promise<RequestCounts> {
  const { failed, recovered, connected, uncounted, unusable, usable, onFailure } = options;
  const { now = Date.now, lease = LEASE_MS, lookEvery = LOOK_MS } = options;
  /** Client → ids of its requests that run here. */
  const running = new Map<string, Set<string>>();
  /** Clients whose keys cannot be used. */
  const withoutKeys = new Set<string>();
  let owed: Release[] = [];
  const releasing = new Set<Promise<void>>();
  const replica = randomBytes(9).toString('base64url');
  let count = 0;
  const today = (): number => Math.floor(now() / DAY_MS);

  function owe(release: Release): void {
    owed.push(release);
    if (owed.length > MOST_OWED) owed = owed.slice(-MOST_OWED);
  }

  /** Rejects with StoreError; the release is owed then. */
  async function sendRelease(run: Run, release: Release): Promise<void> {
    const { client, id, how } = release;
    const tokens = release.day === today() ? release.tokens : 0;
    try {
      await run(RELEASE, keysOf(client), [id, tokens, how]);
    } catch (thrown) {
      if ((thrown as StoreError).ofKeys) return; // nothing can be given back under these keys
      if (how === 'first' && (thrown as StoreError).perhapsRun) release.how = 'again';
      owe(release);
      throw thrown;
    }
  }

  /** Tells the store what it missed, and that what runs here still runs. */
  async function catchUp(run: Run): Promise<void> {
    while (owed.length > 0) {
      const batch = owed.splice(0, BATCH).map((release) => sendRelease(run, release));
      const failure = (await Promise.allSettled(batch)).find(({ status }) => status === 'rejected');
      if (failure?.status === 'rejected') throw failure.reason;
    }
    const renewals = [...running].map(([client, ids]) => run(RENEW, keysOf(client), [lease, ...ids]));
    await Promise.all(renewals.map((renewed) => renewed.catch(unlessOfKeys)));
  }

  /**
   * A new connection is of use if the scripts run there. From now on the server has them, so that none is sent twice and comes after
   * what was sent behind it.
   */
  async function prepare(run: Run): Promise<void> {
    const keys = keysOf(NOBODY);
    // First the one with few arguments: a server that wants a password says so only to short commands.
    await run(RENEW, keys, [1, replica]).catch(unlessOfKeys);
    await run(ADMIT, keys, [replica, NO_LIMIT, NO_LIMIT, NO_LIMIT, 1]).catch(unlessOfKeys);
    await run(RELEASE, keys, [replica, 1, 'cancel']).catch(unlessOfKeys);
    await catchUp(run);
  }

  const connection = await openRedisConnection({
    ...{ url: options.url, ca: options.ca, prepare, recovered, connected },
    failed: (reason) => failed(unavailable(reason), reason),
  });
  const renewal = setInterval(() => void catchUp(connection.run).catch(() => {}), lease / 3).unref();
  // An error gives the connection up, which reports it.
  const look = (): unknown => connection.run(RENEW, keysOf(NOBODY), [1, replica]).catch(() => {});
  const looks = setInterval(look, lookEvery).unref();

  function release(client: string, id: string, tokens: number): void {
    const ids = running.get(client);
    if (!ids?.delete(id)) return;
    if (ids.size === 0) running.delete(client);
    const sent: Promise<void> = sendRelease(connection.run, {
      ...{ client, id, day: today(), how: 'first' },
      tokens: tokens > 0 ? Math.min(Math.trunc(tokens), MOST_TOKENS) : 0,
    })
      .catch(() => {})
      .finally(() => releasing.delete(sent));
    releasing.add(sent);
  }

  /** For a request that nobody can count. Throws limits_unavailable where such ones are refused. */
  function withoutCount(reason: string): Permit {
    if (onFailure === 'closed') throw unavailable(reason);
    uncounted();
    return NOT_COUNTED;
  }

  async function admit({ name, limits }: LimitedClient): Promise<Permit> {
    const { tokensPerDay = -1, requestsPerMinute = -1, maxConcurrent = -1 } = limits;
    count += 1;
    const id = `${replica}.${count}`;
    let reply: readonly number[];
    try {
      const args = [id, tokensPerDay, requestsPerMinute, maxConcurrent, lease];
      reply = (await connection.run(ADMIT, keysOf(name), args)) as readonly number[];
    } catch (thrown) {
      const { message, perhapsRun, ofKeys } = thrown as StoreError;
      if (ofKeys && !withoutKeys.has(name)) {
        withoutKeys.add(name);
        unusable?.(name, message);
      }
      if (perhapsRun) owe({ client: name, id, tokens: 0, day: today(), how: 'cancel' });
      return withoutCount(message);
    }
    if (withoutKeys.delete(name)) usable?.(name);
    const limit = REACHED[reply[0] as number];
    if (limit !== undefined) throw limitReached(limit, limits, reply[1] as number);
    const ids = running.get(name) ?? new Set();
    running.set(name, ids.add(id));
    return { release: (tokens) => release(name, id, tokens) };
  }

  return {
    admit(client) {
      const { tokensPerDay, requestsPerMinute, maxConcurrent } = client.limits;
      // Who has no limits needs no store.
      return (tokensPerDay ?? requestsPerMinute ?? maxConcurrent) === undefined ? NOT_COUNTED : admit(client);
    },
    async close() {
      clearInterval(renewal);
      clearInterval(looks);
      // A replica that ends does not hold places for another minute.
      for (const [client, ids] of running) for (const id of ids) release(client, id, 0);
      await Promise.all(releasing);
      await connection.close();
    },
  };
}

/** What one client's keys hold is nothing that others, or a new connection, depend on. */
function unlessOfKeys(thrown: unknown): void {
  if (!(thrown as StoreError).ofKeys) throw thrown;
}

const NOT_COUNTED: Permit = { release() {} };

const unavailable = (reason: string): PrivatemodeError =>
  new PrivatemodeError('limits_unavailable', `the store of the limits cannot be used: ${reason}`, {
    retryAfter: RETRY_SECONDS,
  });
