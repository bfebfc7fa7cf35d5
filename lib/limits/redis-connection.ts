/**
 * A connection to a Redis or Valkey. Whenever it is lost, this file makes a new one. Every wait has a bound,
 * and nothing queues without one.
 */
import type { createClient, ErrorReply } from '@redis/client';
import { type Clock, pause } from '../clock.ts';
import { parseStoreUrl } from '../config/limits-store.ts';

/** A Lua script. It goes as text: the server compiles each text once, and scripts run in the order sent. */
export interface Script {
  readonly text: string;
  /** Whether the script can have given this reply. */
  readonly fits: (reply: unknown) => boolean;
}

/** Runs a script on keys and arguments, and gives a reply that fits it. Rejects with StoreError. */
export type Run = (
  script: Script,
  keys: readonly string[],
  args: readonly (string | number)[],
) => Promise<unknown>;

/**
 * Why a script gave no valid reply. The message repeats neither the URL nor the text of the server's error.
 */
export class StoreError extends Error {
  /** The server may have run the script all the same. */
  readonly perhapsRun: boolean;
  /** One of the script's keys holds something that the script cannot use. Other keys are as good as ever. */
  readonly ofKeys: boolean;

  constructor(message: string, perhapsRun: boolean, ofKeys = false) {
    super(message);
    this.name = 'StoreError';
    this.perhapsRun = perhapsRun;
    this.ofKeys = ofKeys;
  }
}

export interface RedisConnectionOptions {
  /** redis:// or rediss://, see parseStoreUrl. */
  readonly url: string;
  /** CA certificates for rediss://, in PEM. Undefined: the CAs that Node trusts. */
  readonly ca: readonly string[] | undefined;
  readonly clock: Clock;
  /** Called with a new connection before anybody else uses it. If it rejects, the connection is given up. */
  readonly prepare: (run: Run) => Promise<void>;
  /**
   * Called when the server cannot be used, and again for each new reason until it can be used. `reason`
   * repeats nothing of the URL.
   */
  readonly failed: (reason: string) => void;
  /** Called when the server can be used again. */
  readonly recovered: () => void;
  /** Called when the server can be used for the first time, before `recovered`. */
  readonly connected?: (() => void) | undefined;
}

type Client = ReturnType<typeof createClient>;

/**
 * The error of a script on a key of another type. Servers before Redis 7 say first where in the script it
 * was.
 */
const WRONG_TYPE =
  /^(?:ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:[0-9]+: )?-?WRONGTYPE\b/;
const UNUSABLE_KEYS = 'a key of this client holds something that is no count (WRONGTYPE)';

export type RedisConnection = Awaited<ReturnType<typeof openRedisConnection>>;

/** Resolves after the first attempt to connect, whether it succeeded or not. Throws config_invalid. */
export async function openRedisConnection(options: RedisConnectionOptions) {
  const { prepare, failed, recovered, connected = () => {}, clock } = options;
  const { storeReply, storeConnect, storeFirstRetry, storeLongestRetry } = clock.times;
  const address = parseStoreUrl(options.url, '--limits-store');
  // Loaded here, so that a gateway which does not count in Redis does not pay for its client.
  const redis = await import('@redis/client');
  const isReply = (thrown: unknown): thrown is ErrorReply => thrown instanceof redis.ErrorReply;
  const closing = new AbortController();
  const { signal } = closing;
  let current: { readonly client: Client; readonly lost: () => void } | undefined;
  /** The client that was made last, in use or not. */
  let attempted: Client | undefined;
  /** Why the server cannot be used, as reported last. */
  let failure: string | undefined;
  let isFirst = true;

  function fail(reason: string): void {
    if (reason !== failure && !signal.aborted) failed(reason);
    failure = reason;
  }

  /** Gives a connection up, if it is the one in use. */
  function drop(client: Client, reason: string): void {
    if (current?.client !== client) return;
    const { lost } = current;
    current = undefined;
    client.destroy();
    fail(reason);
    lost();
  }

  async function runOn(client: Client, ...[script, keys, args]: Parameters<Run>): Promise<unknown> {
    const command = ['EVAL', script.text, String(keys.length), ...keys, ...args.map(String)];
    try {
      // Replies come in order, so a connection on which one is late is given up.
      const reply = await within(clock, storeReply, client.sendCommand(command));
      // An invalid reply may come from a proxy in between or from another server. Neither keeps count for us.
      if (!script.fits(reply)) throw new StoreError('its reply is invalid', true);
      return reply;
    } catch (thrown) {
      if (isReply(thrown) && WRONG_TYPE.test(thrown.message))
        throw new StoreError(UNUSABLE_KEYS, false, true);
      throw new StoreError(reasonOf(thrown, isReply), !isReply(thrown));
    }
  }

  /** Tries to connect once. Resolves with the reason if that failed, else with undefined. */
  async function connect(lost: () => void): Promise<string | undefined> {
    const client = newClient(redis.createClient, address, { ca: options.ca, connectTimeout: storeConnect });
    client.on('error', (thrown: unknown) => drop(client, reasonOf(thrown, isReply)));
    attempted = client;
    try {
      await within(clock, storeConnect, client.connect(), signal);
      await prepare((...call) => runOn(client, ...call));
      if (!client.isReady || signal.aborted) throw new StoreError('the connection was lost', false);
    } catch (thrown) {
      client.destroy();
      return reasonOf(thrown, isReply);
    }
    current = { client, lost };
    if (isFirst) connected();
    isFirst = false;
    if (failure !== undefined) recovered();
    failure = undefined;
    return undefined;
  }

  /**
   * Connects, and connects again whenever the connection is lost, until `close`. Calls `tried` after each
   * attempt, whether it failed or succeeded.
   */
  async function stayConnected(tried: () => void): Promise<void> {
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const { promise, resolve: lost } = Promise.withResolvers<void>();
      const reason = await connect(lost);
      tried();
      if (reason === undefined) {
        const since = clock.monotonic();
        await promise;
        // A connection that lived for longer than this was a good one, so the next attempt follows quickly.
        if (clock.monotonic() - since > storeLongestRetry) attempt = 0;
      } else fail(reason);
      const wait = Math.min(storeLongestRetry, storeFirstRetry * 2 ** attempt);
      // The random part keeps replicas that lost the same server from coming back in step.
      await pause(clock, wait * (0.75 + Math.random() / 4), signal).catch(() => {});
    }
  }

  const { promise: tried, resolve } = Promise.withResolvers<void>();
  const loop = stayConnected(resolve);
  await tried;
  return {
    /**
     * Runs a script. Rejects at once while there is no connection. After an error the connection is given up,
     * unless the error concerns only the keys of this script.
     */
    async run(...call: Parameters<Run>): Promise<unknown> {
      if (current === undefined) throw new StoreError('there is no connection', false);
      const { client } = current;
      try {
        return await runOn(client, ...call);
      } catch (thrown) {
        const { ofKeys, message } = thrown as StoreError;
        if (!ofKeys) drop(client, message);
        throw thrown;
      }
    },
    async close(): Promise<void> {
      closing.abort();
      current?.lost();
      current = undefined;
      attempted?.destroy();
      await loop;
    },
  };
}

function newClient(
  create: typeof createClient,
  { host, port, tls, username, password, database }: ReturnType<typeof parseStoreUrl>,
  { ca, connectTimeout }: { readonly ca: readonly string[] | undefined; readonly connectTimeout: number },
): Client {
  const socket = { host, port, connectTimeout, reconnectStrategy: false } as const;
  return create({
    socket: tls ? { ...socket, tls: true, ...(ca === undefined ? {} : { ca: [...ca] }) } : socket,
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    database,
    RESP: 2, // with 3 the password goes with HELLO, which an old server repeats in its error
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    // No timeout: it would cover the wait until a command is written, not the wait for its reply.
    commandOptions: { timeout: 0 },
  }) as unknown as Client;
}

class NoReply extends Error {}

/** The result of `promise`, or a rejection with NoReply after `ms` or when `signal` aborts. */
function within<T>(clock: Clock, ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(new NoReply());
  signal?.addEventListener('abort', abort);
  // If this process itself was busy, the reply may lie in the socket by now: Node reads it before it runs
  // setImmediate.
  const inTime = clock.after(ms, () => setImmediate(reject, new NoReply()), 'waiting');
  return Promise.race([promise, late]).finally(() => {
    inTime();
    signal?.removeEventListener('abort', abort);
  });
}

/** What to do about errors of a server that concern the URL, by their code. */
const REPLIES: Readonly<Record<string, string>> = {
  WRONGPASS: 'check user and password in the URL, in which % @ : / ? # are written %25 %40 %3A %2F %3F %23',
  NOAUTH: 'it wants a password: write redis://:PASSWORD@HOST',
};

/**
 * The reason of a failure in words of our own: errors of servers repeat commands, and a command may hold the
 * password.
 */
function reasonOf(thrown: unknown, isReply: (thrown: unknown) => thrown is ErrorReply): string {
  if (thrown instanceof StoreError) return thrown.message;
  if (thrown instanceof NoReply) return 'it does not reply in time';
  const { message, code } = thrown as NodeJS.ErrnoException;
  if (isReply(thrown)) {
    const [code = 'ERR'] = /^[A-Z]{2,20}\b/.exec(message) ?? [];
    return `it replies with the error ${code}${Object.hasOwn(REPLIES, code) ? `: ${REPLIES[code]}` : ''}`;
  }
  return typeof code === 'string' && /^[A-Z0-9_]{1,60}$/.test(code)
    ? `the connection failed (${code})`
    : 'the connection was lost';
}
