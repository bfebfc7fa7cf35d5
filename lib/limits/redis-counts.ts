/** The counts of clients in a Redis or Valkey that several replicas share (--limits-store). */
import { randomBytes } from 'node:crypto';
import { type Clock, every } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { isCount, type LimitedClient, limitReached, type Permit, type RequestCounts } from './limits.ts';
import { openRedisConnection, type Run, type Script, type StoreError } from './redis-connection.ts';

export interface RedisCountsOptions {
  /** redis:// or rediss://, with user, password and database where there are any. */
  readonly url: string;
  /**
   * What happens while the store cannot be used: `closed` refuses requests; `open` admits them and counts
   * nothing.
   */
  readonly onFailure: 'closed' | 'open';
  /**
   * Called when the store cannot be used, and again for each new reason until it can be used. The URL and
   * the password are neither in the error nor in the reason.
   */
  readonly failed: (error: PrivatemodeError, reason: string) => void;
  /** Called when the store can be used again. */
  readonly recovered: () => void;
  /** Called when the store can be used for the first time. */
  readonly connected?: (() => void) | undefined;
  /** Called when a request is admitted that is not counted (`open`). */
  readonly uncounted: () => void;
  /**
   * Called when the store can be used, but not the keys of that client; not called again before they could be
   * used.
   */
  readonly unusable?: (client: string, reason: string) => void;
  /** Called when the keys of that client can be used again. */
  readonly usable?: (client: string) => void;
  /** CA certificates for rediss://, in PEM. Default: the CAs that Node trusts. */
  readonly ca?: readonly string[];
  /**
   * Its wall clock decides only whether the day of late tokens is over; all else goes by the clock of the
   * store.
   */
  readonly clock: Clock;
}

/**
 * Four keys for each client, which all expire. The braces make a cluster keep them together. `tokens`:
 * integer, the tokens of this day. `window`: sorted set, the requests of the last 60 s by the ms when they
 * were admitted. `running`: sorted set, the running requests by the ms when their lease ends. `counted`:
 * sorted set, the replicas by the turn of their last release whose tokens are in `tokens`.
 */
const keysOf = (client: string): readonly string[] =>
  ['tokens', 'window', 'running', 'counted'].map((key) => `privatemode-proxy:{${client}}:${key}`);

/** The clock of the store, so that replicas with different clocks agree. All times in ms. */
const CLOCK = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local midnight = (math.floor(now / 86400000) + 1) * 86400000
`;

/**
 * Reads the tokens that are counted under a key. If the key holds no number, the error is that of a key of
 * another type (WRONGTYPE), which concerns this client alone: an error of another kind would mean that the
 * whole store cannot be used.
 */
const TOKENS = `
local tokens = redis.call('GET', KEYS[1]) or '0'
if not string.match(tokens, '^-?%d+$') or #tokens > 18 then return redis.error_reply('WRONGTYPE no number') end
`;

/**
 * Admits a request or refuses it. Arguments: id, tokens per day, requests per minute, most at a time (-1: no
 * limit, nothing compared), lease. Replies with the number of the limit that is reached, as in REACHED, or 0,
 * and with the seconds to wait.
 */
const ADMIT: Script = {
  text: `${CLOCK}
local id, lease = ARGV[1], tonumber(ARGV[5])
local tokensPerDay, requestsPerMinute, maxConcurrent = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if tokensPerDay >= 0 then
  ${TOKENS}
  redis.call('ZCARD', KEYS[4]) -- an error if RELEASE could not use the key
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
  fits: (reply) =>
    Array.isArray(reply) && reply.length === 2 && reply.every(isCount) && reply[0]! < REACHED.length,
};

/**
 * Gives a place back. Arguments: id, tokens, how (Release.how), replica, turn (Release.turn). Counts the
 * tokens once, however often and late it arrives: the turns of a replica rise, so a turn that is not above
 * the last one has been counted. A turn that another overtakes would never be counted.
 * Replies with 1 if the place was still there, else with 0.
 */
const RELEASE: Script = {
  text: `${CLOCK}
local id, added, how, replica, turn = unpack(ARGV)
local held = redis.call('ZREM', KEYS[3], id)
if how == 'cancel' then redis.call('ZREM', KEYS[2], id) end
if tonumber(added) > 0 then
  ${TOKENS}
  if redis.call('ZADD', KEYS[4], 'GT', 'CH', turn, replica) == 1 then
    redis.call('INCRBY', KEYS[1], added)
    redis.call('PEXPIREAT', KEYS[1], midnight)
    redis.call('PEXPIREAT', KEYS[4], midnight)
  end
end
return held`,
  fits: isCount,
};

/**
 * Renews the leases of running requests, and restores those that the store has lost. Arguments: lease, ids.
 */
const RENEW: Script = {
  text: `${CLOCK}
local lease = tonumber(ARGV[1])
for i = 2, #ARGV do redis.call('ZADD', KEYS[3], now + lease, ARGV[i]) end
return redis.call('PEXPIRE', KEYS[3], lease)`,
  fits: isCount,
};

/** The limits by the number with which ADMIT replies. */
const REACHED = [undefined, 'tokensPerDay', 'requestsPerMinute', 'maxConcurrent'] as const;

/** A place to give back. The store may not have heard of this yet. */
interface Release {
  readonly client: string;
  readonly id: string;
  readonly tokens: number;
  /** The day on which it was given back (UTC), in days since 1970. */
  readonly day: number;
  /** `end`: gives the place back and counts the tokens. `cancel`: leaves the store as if it never ran. */
  readonly how: 'end' | 'cancel';
  /** Its place among the releases that this replica has sent; kept if the store has perhaps counted it. */
  turn?: number | undefined;
}

/** Orders releases: those that the store has perhaps counted come first, by their turns. */
const byTurn = ({ turn: one = Number.MAX_VALUE }: Release, { turn: other = Number.MAX_VALUE }: Release) =>
  one - other;

const DAY_MS = 86_400_000;
/**
 * Highest number of releases that wait for a store that is away. The oldest give way, and their leases run
 * out.
 */
const MOST_OWED = 10_000;
/** Number of waiting releases that go out at a time. */
const BATCH = 500;
/**
 * Highest number of tokens of one request. A greater number is nonsense, and many such would leave the range
 * of the store's integers.
 */
const MOST_TOKENS = 1e12;
const RETRY_SECONDS = 2;
/** A name that no client has. The scripts run on its keys to try a connection. */
const NOBODY = '';
/** A limit that the script compares with the counts, but that is never reached. */
const NO_LIMIT = 1e15;

/**
 * Counts requests and tokens in a store. A store that cannot be reached, now or later, is tried again for
 * ever; this function resolves all the same. Throws config_invalid if the URL is invalid.
 */
export async function openRedisCounts(options: RedisCountsOptions): Promise<RequestCounts> {
  const { failed, recovered, connected, uncounted, unusable, usable, onFailure } = options;
  const { clock } = options;
  const { storeLease, storeLook } = clock.times;
  /** Client → ids of its requests that run here. */
  const running = new Map<string, Set<string>>();
  /** Clients whose keys cannot be used. */
  const withoutKeys = new Set<string>();
  let owed: Release[] = [];
  const releasing = new Set<Promise<void>>();
  const replica = randomBytes(9).toString('base64url');
  let count = 0;
  let turns = 0;
  const today = (): number => Math.floor(clock.now() / DAY_MS);

  function owe(release: Release): void {
    owed.push(release);
    if (owed.length > MOST_OWED) owed = owed.slice(-MOST_OWED);
  }

  /** Sends a release to the store. If that fails, it rejects with StoreError, and the release is owed. */
  async function sendRelease(run: Run, release: Release): Promise<void> {
    const { client, id, how } = release;
    const tokens = release.day === today() ? release.tokens : 0;
    const isNew = release.turn === undefined;
    release.turn ??= ++turns;
    try {
      await run(RELEASE, keysOf(client), [id, tokens, how, replica, release.turn]);
    } catch (thrown) {
      if ((thrown as StoreError).ofKeys) return; // nothing can be given back under these keys
      if (isNew && !(thrown as StoreError).perhapsRun) release.turn = undefined;
      owe(release);
      throw thrown;
    }
  }

  function noteUsable(client: string): void {
    if (withoutKeys.delete(client)) usable?.(client);
  }

  /**
   * Tries the keys of a client that could not be used: perhaps somebody has repaired them, and the client
   * sends no request any more. The script reads all keys, and adds nothing, because no request may run.
   */
  async function tryKeys(run: Run, client: string): Promise<void> {
    await run(ADMIT, keysOf(client), [replica, NO_LIMIT, NO_LIMIT, 0, 1]);
    noteUsable(client);
  }

  /**
   * Sends the store the releases that it missed, renews the leases of the requests that run here, and tries
   * the keys that could not be used.
   */
  async function catchUp(run: Run): Promise<void> {
    while (owed.length > 0) {
      owed.sort(byTurn);
      // One that the store has perhaps counted goes alone: if it fails, none may overtake it.
      const size = owed[0]?.turn === undefined ? BATCH : 1;
      const batch = owed.splice(0, size).map((release) => sendRelease(run, release));
      const failure = (await Promise.allSettled(batch)).find(({ status }) => status === 'rejected');
      if (failure?.status === 'rejected') throw failure.reason;
    }
    const renewals = [...running].map(([client, ids]) => run(RENEW, keysOf(client), [storeLease, ...ids]));
    const tries = [...withoutKeys].map((client) => tryKeys(run, client));
    await Promise.all([...renewals, ...tries].map((sent) => sent.catch(unlessOfKeys)));
  }

  /** Tries a new connection: it is of use only if the scripts run there. */
  async function prepare(run: Run): Promise<void> {
    const keys = keysOf(NOBODY);
    // The script with few arguments comes first: a server that wants a password says so only to short
    // commands.
    await run(RENEW, keys, [1, replica]).catch(unlessOfKeys);
    await run(ADMIT, keys, [replica, NO_LIMIT, NO_LIMIT, NO_LIMIT, 1]).catch(unlessOfKeys);
    await run(RELEASE, keys, [replica, 1, 'cancel', replica, ++turns]).catch(unlessOfKeys);
    await catchUp(run);
  }

  const connection = await openRedisConnection({
    url: options.url,
    ca: options.ca,
    clock,
    prepare,
    recovered,
    connected,
    failed: (reason) => failed(unavailable(reason), reason),
  });
  const endRenewal = every(clock, storeLease / 3, () => void catchUp(connection.run).catch(() => {}));
  // If this fails, the connection is given up, and that is reported.
  const look = (): unknown => connection.run(RENEW, keysOf(NOBODY), [1, replica]).catch(() => {});
  const endLooks = every(clock, storeLook, look);

  function release(client: string, id: string, tokens: number): void {
    const ids = running.get(client);
    if (!ids?.delete(id)) return;
    if (ids.size === 0) running.delete(client);
    const sent: Promise<void> = sendRelease(connection.run, {
      client,
      id,
      day: today(),
      how: 'end',
      tokens: tokens > 0 ? Math.min(Math.trunc(tokens), MOST_TOKENS) : 0,
    })
      .catch(() => {})
      .finally(() => releasing.delete(sent));
    releasing.add(sent);
  }

  /**
   * The permit of a request that nobody can count. Throws limits_unavailable if such requests are refused
   * (`closed`).
   */
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
      const args = [id, tokensPerDay, requestsPerMinute, maxConcurrent, storeLease];
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
    noteUsable(name);
    const limit = REACHED[reply[0] as number];
    if (limit !== undefined) throw limitReached(limit, limits, reply[1] as number);
    const ids = running.get(name) ?? new Set();
    running.set(name, ids.add(id));
    return { release: (tokens) => release(name, id, tokens) };
  }

  return {
    admit(client) {
      const { tokensPerDay, requestsPerMinute, maxConcurrent } = client.limits;
      // A client without limits needs no store.
      return (tokensPerDay ?? requestsPerMinute ?? maxConcurrent) === undefined ? NOT_COUNTED : admit(client);
    },
    async close() {
      endRenewal();
      endLooks();
      // Gives all places back: otherwise the store would hold them for another minute.
      for (const [client, ids] of running) for (const id of ids) release(client, id, 0);
      await Promise.all(releasing);
      await connection.close();
    },
  };
}

/**
 * Ignores an error that concerns the keys of one client: neither other clients nor a new connection depend on
 * these.
 */
function unlessOfKeys(thrown: unknown): void {
  if (!(thrown as StoreError).ofKeys) throw thrown;
}

const NOT_COUNTED: Permit = { release() {} };

const unavailable = (reason: string): PrivatemodeError =>
  new PrivatemodeError('limits_unavailable', `the store of the limits cannot be used: ${reason}`, {
    retryAfter: RETRY_SECONDS,
  });
