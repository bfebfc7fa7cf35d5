/** The counts of clients in a Redis or Valkey that several replicas share (--limits-store). */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type Clock, Deadline, every, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { isCount, type LimitedClient, limitReached, type Permit } from './limits.ts';

/** While the store cannot be used, `closed` refuses requests; `open` admits them and calls `uncounted`. */
export interface RedisCountsOptions {
  readonly url: string; // redis:// or rediss://; may have user, password and database
  readonly ca: readonly string[]; // certificates for rediss://, in PEM
  readonly onFailure: 'closed' | 'open';
  readonly uncounted: () => void;
  readonly failed: (reason: string) => void; // the store fails; `reason` quotes nothing of the URL
  readonly usable: () => void; // called when a test of the store succeeds
  readonly clock: Clock;
}

/**
 * Each client has three keys, which all expire. Because of the braces a cluster keeps the three together.
 * `tokens`: integer, the tokens of this day. `window`: sorted set, the requests of the last 60 s by the ms
 * when they were admitted. `running`: sorted set, the running requests by the ms when their lease ends.
 */
const keysOf = (client: string): readonly string[] =>
  ['tokens', 'window', 'running'].map((key) => `privatemode-proxy:{${client}}:${key}`);

/**
 * One script has all actions, so that a server knows all of them or none. The script replies with the number
 * of the reached limit, as in REACHED, or 0, and with the seconds to wait. It uses the clock of the store, so
 * that replicas with different clocks agree. All times are in ms. Arguments:
 * - `release`, id, tokens: gives a place back, and counts the tokens for the current day.
 * - `renew`, id, lease: renews the lease of a running request, or restores a lease that the store has lost.
 * - `admit`, id, lease, tokens per day, requests per minute, most at a time (-1: no limit).
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

/** Whether the script can have given this reply. Others may come from a proxy or another server. */
const isReply = (reply: unknown): reply is Reply =>
  Array.isArray(reply) && reply.length === 2 && reply.every(isCount) && reply[0]! < REACHED.length;

const NOT_COUNTED: Permit = { release() {} };

/**
 * Counts requests and tokens in a store. This function resolves even if the store cannot be reached; the
 * store is then tried again for ever. What the store misses meanwhile is lost: the lease of a running request
 * ends after a minute, and its tokens are not counted.
 */
export async function openRedisCounts(options: RedisCountsOptions) {
  const { clock, failed, url } = options;
  const { times } = clock;
  // The Redis client is loaded here, so that a gateway without Redis does not pay for it.
  const redis = await import('@redis/client');
  /** Id of each request that runs here → its client. */
  const running = new Map<string, string>();

  const count = redis.defineScript({
    SCRIPT,
    NUMBER_OF_KEYS: 3,
    parseCommand: (parser, client: string, args: readonly (string | number)[]) =>
      parser.push(...keysOf(client), ...args.map(String)),
    transformReply: (reply: unknown) => reply,
  });
  const store = redis.createClient({
    url,
    socket: {
      connectTimeout: times.storeConnect,
      socketTimeout: times.storeSilence,
      reconnectStrategy: (retries) => Math.min(times.storeLongestRetry, times.storeFirstRetry * 2 ** retries),
      ...(/^rediss:/i.test(url) ? { tls: true, ca: [...options.ca] } : {}),
    },
    RESP: 2, // RESP 3 sends the password in HELLO, which an old server repeats in its error
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    commandsQueueMaxLength: 10_000,
    commandOptions: { timeout: 0 }, // it covers the wait to be sent, not the wait for a reply
    scripts: { count },
  });

  /** The reason in our own words: errors of servers repeat commands, which may hold the password. */
  function reasonOf(thrown: unknown): string {
    const { message, code } = thrown as NodeJS.ErrnoException;
    if (thrown instanceof redis.ErrorReply)
      return `it replies with the error ${/^[A-Z]{2,20}\b/.exec(message)?.[0] ?? 'ERR'}`;
    return code === undefined ? 'the connection was lost' : `the connection failed (${code})`;
  }

  /** Connects, and tries again until the connection stands. The event `error` has each failure's reason. */
  const connect = (): Promise<unknown> => store.connect().catch(() => {});

  /** Drops the connection: replies come in order, so all requests behind a late reply would wait with it. */
  function giveUp(): void {
    if (!store.isReady) return;
    failed('it does not reply in time');
    const { isOpen } = store; // false: close() was called
    store.destroy();
    if (isOpen) void connect();
  }

  /** Runs the script on the keys of a client. Throws an error that says why there is no valid reply. */
  async function run(client: string, ...args: readonly (string | number)[]): Promise<Reply> {
    if (!store.isReady) throw new Error('there is no connection');
    const deadline = new Deadline(clock).wait(times.storeReply, giveUp);
    const reply: unknown = await store
      .count(client, args)
      .catch((thrown) => Promise.reject(new Error(reasonOf(thrown))))
      .finally(() => deadline.cancel());
    if (isReply(reply)) return reply;
    throw new Error('its reply is invalid');
  }

  /** Sends the store an update that may get lost. */
  const tell = (...call: Parameters<typeof run>): unknown => run(...call).catch(() => {});

  /**
   * Renews the leases. Then it tests the store with the keys of no client, because an error that the keys of
   * one client cause says nothing of the store.
   */
  async function look(): Promise<void> {
    if (!store.isReady) return;
    for (const [id, client] of running) tell(client, 'renew', id, times.storeLease);
    try {
      await run('', 'renew', 'look', 1); // a server that wants a password says so only to short commands
      options.usable();
    } catch (thrown) {
      if (store.isReady) failed((thrown as Error).message); // otherwise the lost connection was reported
    }
  }

  store.on('error', (thrown: unknown) => store.isOpen && failed(reasonOf(thrown)));
  store.on('ready', look);
  await Promise.race([connect(), once(store, 'error'), pause(clock, times.storeConnect)]);
  const endLooks = every(clock, times.storeLook, look);

  async function admit({ name, limits }: LimitedClient): Promise<Permit> {
    const { tokensPerDay = -1, requestsPerMinute = -1, maxConcurrent = -1 } = limits;
    if (Math.max(tokensPerDay, requestsPerMinute, maxConcurrent) < 0) return NOT_COUNTED; // no limit is set
    const id = randomBytes(12).toString('base64url');
    const asked = run(name, 'admit', id, times.storeLease, tokensPerDay, requestsPerMinute, maxConcurrent);
    const reply = await asked.catch(({ message }: Error) => {
      if (options.onFailure === 'open') return void options.uncounted();
      const reason = `the store of the limits cannot be used: ${message}`;
      throw new PrivatemodeError('limits_unavailable', reason, { retryAfter: 2 });
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
    admit,
    /** Waits for the replies to earlier updates. Later requests find no store. */
    async close(): Promise<void> {
      endLooks();
      if (store.isReady) await store.close();
      else store.destroy();
    },
  };
}
