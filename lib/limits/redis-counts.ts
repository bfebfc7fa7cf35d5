/** The counts of clients in a Redis or Valkey that several replicas share (--limits-store). */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type Clock, every, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { isCount, type LimitedClient, limitReached, type Permit } from './limits.ts';

export interface RedisCountsOptions {
  /** redis:// or rediss://, with user, password and database where there are any. */
  readonly url: string;
  /** CA certificates for rediss://, in PEM. */
  readonly ca: readonly string[];
  /** While nobody can count: `closed` refuses requests; `open` admits them and calls `uncounted`. */
  readonly onFailure: 'closed' | 'open';
  readonly uncounted: () => void;
  /** Called whenever the store cannot be used. `reason` repeats nothing of the URL. */
  readonly failed: (reason: string) => void;
  /** Called whenever a look at the store has found that it can be used. */
  readonly usable: () => void;
  readonly clock: Clock;
}

/**
 * Three keys for each client, which all expire. The braces make a cluster keep them together. `tokens`:
 * integer, the tokens of this day. `window`: sorted set, the requests of the last 60 s by the ms when they
 * were admitted. `running`: sorted set, the running requests by the ms when their lease ends.
 */
const keysOf = (client: string): readonly string[] =>
  ['tokens', 'window', 'running'].map((key) => `privatemode-proxy:{${client}}:${key}`);

/**
 * One script, so that a server knows all of it or nothing. Replies with the number of the limit that is
 * reached, as in REACHED, or 0, and with the seconds to wait. It goes by the clock of the store, so replicas
 * with different clocks agree; all times are in ms. Arguments:
 * - `release`, id, tokens: gives a place back, and counts tokens for the day on which this is done.
 * - `renew`, id, lease: renews the lease of a running request, or restores what the store has lost.
 * - `admit`, id, lease, tokens per day, requests per minute, most at a time (-1: no limit, not compared).
 */
const SCRIPT = `
local tokens, window, running = KEYS[1], KEYS[2], KEYS[3]
local action, id = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local midnight = (math.floor(now / 86400000) + 1) * 86400000

if action == 'release' then
  redis.call('ZREM', running, id)
  if tonumber(ARGV[3]) > 0 then
    redis.call('INCRBY', tokens, ARGV[3])
    redis.call('PEXPIREAT', tokens, midnight)
  end
  return {0, 0}
end

if action == 'admit' then
  local tokensPerDay, requestsPerMinute, maxConcurrent = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  if tokensPerDay >= 0 and tonumber(redis.call('GET', tokens) or 0) >= tokensPerDay then
    return {1, math.ceil((midnight - now) / 1000)}
  end
  if requestsPerMinute >= 0 then
    redis.call('ZREMRANGEBYSCORE', window, '-inf', now - 60000)
    -- What lies ahead, because the clock of the store was set back, counts as now: nobody waits for over a minute.
    for _, ahead in ipairs(redis.call('ZRANGE', window, '(' .. now, '+inf', 'BYSCORE')) do
      redis.call('ZADD', window, now, ahead)
    end
    local over = redis.call('ZCARD', window) - requestsPerMinute
    if over >= 0 then
      local first = redis.call('ZRANGE', window, over, over, 'WITHSCORES')[2]
      return {2, math.ceil(((first or now) + 60000 - now) / 1000)}
    end
  end
  redis.call('ZREMRANGEBYSCORE', running, '-inf', now)
  if maxConcurrent >= 0 and redis.call('ZCARD', running) >= maxConcurrent then return {3, 1} end
  if requestsPerMinute >= 0 then
    redis.call('ZADD', window, now, id)
    redis.call('PEXPIRE', window, 60000)
  end
end

redis.call('ZADD', running, now + ARGV[3], id)
redis.call('PEXPIRE', running, ARGV[3])
return {0, 0}`;

const REACHED = [undefined, 'tokensPerDay', 'requestsPerMinute', 'maxConcurrent'] as const;

type Reply = readonly [reached: number, seconds: number];

/** Other replies may come from a proxy in between or from another server. Neither keeps count for us. */
const isReply = (reply: unknown): reply is Reply =>
  Array.isArray(reply) && reply.length === 2 && reply.every(isCount) && reply[0]! < REACHED.length;

/** A name that no client has. The script runs on its keys to try the store. */
const NOBODY = '';
const NOT_COUNTED: Permit = { release() {} };

/**
 * Counts requests and tokens in a store. A store that cannot be reached, now or later, is tried again for
 * ever; this function resolves all the same. What a store that is away does not hear of is lost: the lease of
 * a place ends after a minute, and the tokens are not counted.
 */
export async function openRedisCounts(options: RedisCountsOptions) {
  const { clock, failed } = options;
  const { storeReply, storeConnect, storeFirstRetry, storeLongestRetry, storeLease, ...times } = clock.times;
  // Loaded here, so that a gateway which does not count in Redis does not pay for its client.
  const redis = await import('@redis/client');
  const replica = randomBytes(9).toString('base64url');
  /** Requests that run here, and their clients. */
  const running = new Map<string, string>();
  let admissions = 0;
  let isClosed = false;

  const count = redis.defineScript({
    SCRIPT,
    NUMBER_OF_KEYS: 3,
    parseCommand: (parser, client: string, args: readonly (string | number)[]) =>
      parser.push(...keysOf(client), ...args.map(String)),
    transformReply: (reply: unknown) => reply,
  });
  const store = redis.createClient({
    url: options.url,
    socket: {
      connectTimeout: storeConnect,
      socketTimeout: times.storeSilence,
      // The random part keeps replicas that lost the same server from coming back in step.
      reconnectStrategy: (retries) =>
        Math.min(storeLongestRetry, storeFirstRetry * 2 ** retries) * (0.75 + Math.random() / 4),
      ...(/^rediss:/i.test(options.url) ? { tls: true, ca: [...options.ca] } : {}),
    },
    RESP: 2, // with 3 the password goes with HELLO, which an old server repeats in its error
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    commandsQueueMaxLength: 10_000,
    commandOptions: { timeout: 0 }, // it would cover the wait to be written, not that for a reply
    scripts: { count },
  });

  /** In words of our own: errors of servers repeat commands, and a command may hold the password. */
  function reasonOf(thrown: unknown): string {
    const { message, code = '' } = thrown as NodeJS.ErrnoException;
    if (!(thrown instanceof redis.ErrorReply))
      return /^[A-Z0-9_]{1,60}$/.test(code) ? `the connection failed (${code})` : 'the connection was lost';
    const [word = 'ERR'] = /^[A-Z]{2,20}\b/.exec(message) ?? [];
    return `it replies with the error ${word}`;
  }

  /** Connects until that succeeds; the event `error` has the reason of each failure. */
  const connect = (): unknown => store.connect().catch(() => {});

  /** Replies come in order, so a connection on which one is late is given up, with all that wait on it. */
  function giveUp(): void {
    if (!store.isReady) return;
    failed('it does not reply in time');
    store.destroy();
    if (!isClosed) connect();
  }

  /** Runs the script on the keys of a client. Throws an error with the reason why it gave no valid reply. */
  async function run(client: string, ...args: readonly (string | number)[]): Promise<Reply> {
    if (!store.isReady) throw new Error('there is no connection');
    let isOver = false;
    // If this process itself was busy, the reply may lie in the socket by now: Node reads it before it runs
    // setImmediate.
    const inTime = clock.after(storeReply, () => setImmediate(() => isOver || giveUp()), 'waiting');
    try {
      const reply: unknown = await store.count(client, args);
      if (isReply(reply)) return reply;
    } catch (thrown) {
      throw new Error(reasonOf(thrown));
    } finally {
      isOver = true;
      inTime();
    }
    throw new Error('its reply is invalid');
  }

  /** Tells the store something that it may miss. */
  const tell = (...call: Parameters<typeof run>): unknown => run(...call).catch(() => {});

  /** Tries the store with keys of nobody: an error that the keys of one client cause says nothing of it. */
  async function look(): Promise<void> {
    if (!store.isReady) return;
    try {
      await run(NOBODY, 'renew', replica, 1); // a server that wants a password says so only to short commands
      options.usable();
    } catch (thrown) {
      if (store.isReady) failed((thrown as Error).message); // else the loss of the connection has told more
    }
  }

  function renewAndLook(): Promise<void> {
    for (const [id, client] of running) tell(client, 'renew', id, storeLease);
    return look();
  }

  store.on('error', (thrown: unknown) => isClosed || failed(reasonOf(thrown)));
  store.on('ready', renewAndLook);
  const tried = once(store, 'ready').catch(() => {}); // the event `error` ends this, too
  connect();
  await Promise.race([tried, pause(clock, storeConnect)]);
  const endLooks = every(clock, times.storeLook, renewAndLook);

  async function admit({ name, limits }: LimitedClient): Promise<Permit> {
    const { tokensPerDay = -1, requestsPerMinute = -1, maxConcurrent = -1 } = limits;
    admissions += 1;
    const id = `${replica}.${admissions}`;
    const args = [id, storeLease, tokensPerDay, requestsPerMinute, maxConcurrent];
    const reply = await run(name, 'admit', ...args).catch(({ message }: Error) => {
      void look();
      const reason = `the store of the limits cannot be used: ${message}`;
      if (options.onFailure === 'closed')
        throw new PrivatemodeError('limits_unavailable', reason, { retryAfter: 2 });
      options.uncounted();
    });
    if (reply === undefined) return NOT_COUNTED;
    const limit = REACHED[reply[0]];
    if (limit !== undefined) throw limitReached(limit, limits, reply[1]);
    running.set(id, name);
    return {
      release(tokens) {
        if (running.delete(id)) tell(name, 'release', id, tokens > 0 ? tokens : 0);
      },
    };
  }

  return {
    /** See RequestCounts. A client without limits needs no store. */
    admit: (client: LimitedClient): Permit | Promise<Permit> =>
      Object.values(client.limits).every((limit) => limit === undefined) ? NOT_COUNTED : admit(client),
    /** Gives all places back, which the store would hold for another minute, and waits for the replies. */
    async close(): Promise<void> {
      isClosed = true;
      endLooks();
      for (const [id, client] of running) tell(client, 'release', id, 0);
      if (store.isReady) await store.close();
      else store.destroy();
    },
  };
}
