/** Counts the usage of clients in a Redis or Valkey that several replicas share (--limits-store). */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type Clock, Deadline, every, pause } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { isCount, type LimitedClient, limitReached, type Permit } from './limits.ts';

/** While the store is unusable, `closed` refuses requests, and `open` admits them and calls `uncounted`. */
export interface RedisCountsOptions {
  readonly url: string; // redis:// or rediss://, with optional user, password and database
  readonly ca: readonly string[]; // CA certificates for rediss://, in PEM
  readonly onFailure: 'closed' | 'open';
  readonly uncounted: () => void;
  readonly failed: (reason: string) => void; // called when the store fails; `reason` has no part of the URL
  readonly usable: () => void; // called when a test of the store succeeds
  readonly clock: Clock;
}

/**
 * Each client has three keys, which all expire. The braces make a Redis cluster keep the three keys together.
 * `tokens`: integer, the tokens of the current day. `window`: sorted set of the requests of the last 60 s, by
 * the ms of their admission. `running`: sorted set of the running requests, by the ms when their lease ends.
 */
const keysOf = (client: string): readonly string[] =>
  ['tokens', 'window', 'running'].map((key) => `privatemode-proxy:{${client}}:${key}`);

/**
 * One script contains all actions, so that a server knows either all actions or none. The script replies with
 * two numbers: the index in REACHED of the reached limit (else 0), and the seconds to wait. The script uses
 * the store's clock, so that replicas with different clocks agree. All times are in ms. Arguments:
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

/** Whether the script can have given this reply. A proxy or another server may give other replies. */
const isReply = (reply: unknown): reply is Reply =>
  Array.isArray(reply) && reply.length === 2 && reply.every(isCount) && reply[0]! < REACHED.length;

const NOT_COUNTED: Permit = { release() {} };

/**
 * Counts requests and tokens in a store. This function resolves even if the store cannot be reached, and the
 * connection is then retried forever. Updates that the store misses are lost: the lease of a running request
 * ends after a minute, and the tokens of the request are not counted.
 */
export async function openRedisCounts(options: RedisCountsOptions) {
  const { clock, failed, url } = options;
  const { times } = clock;
  // The Redis client is imported here, so that a gateway without Redis does not load it.
  const redis = await import('@redis/client');
  /** The id of each request that runs in this process → the client of the request. */
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
    commandOptions: { timeout: 0 }, // a timeout would limit the wait to be sent, not the wait for a reply
    scripts: { count },
  });

  /** The reason in fixed words, because errors of servers repeat commands, which may hold the password. */
  function reasonOf(thrown: unknown): string {
    const { message, code } = thrown as NodeJS.ErrnoException;
    if (thrown instanceof redis.ErrorReply)
      return `it replies with the error ${/^[A-Z]{2,20}\b/.exec(message)?.[0] ?? 'ERR'}`;
    return code === undefined ? 'the connection was lost' : `the connection failed (${code})`;
  }

  /** Connects, and retries until the connection is open. The event `error` reports each failure. */
  const connect = (): Promise<unknown> => store.connect().catch(() => {});

  /** Drops the connection, because replies come in order and later requests would wait for a late reply. */
  function giveUp(): void {
    if (!store.isReady) return;
    failed('it does not reply in time');
    const { isOpen } = store; // false if close() was called
    store.destroy();
    if (isOpen) void connect();
  }

  /** Runs the script on a client's keys. If there is no valid reply, throws an error that says why. */
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

  /** Sends the store an update that may be lost. */
  const tell = (...call: Parameters<typeof run>): unknown => run(...call).catch(() => {});

  /**
   * Renews the leases. Then tests the store with the keys of no client, because an error that is caused by
   * one client's keys says nothing about the store.
   */
  async function look(): Promise<void> {
    if (!store.isReady) return;
    for (const [id, client] of running) tell(client, 'renew', id, times.storeLease);
    try {
      await run('', 'renew', 'look', 1); // a server that requires a password says so only to short commands
      options.usable();
    } catch (thrown) {
      if (store.isReady) failed((thrown as Error).message); // a lost connection has been reported already
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
