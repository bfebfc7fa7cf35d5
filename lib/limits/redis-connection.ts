/** A connection to a Redis or Valkey that is made anew whenever it is lost. Every wait has a bound, and nothing queues without one. */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { createClient, ErrorReply } from '@redis/client';
import { parseStoreUrl } from '../config/limits-store.ts';

/** A Lua script, and the digest under which the server keeps it. */
export interface Script {
  readonly text: string;
  readonly sha1: string;
  /** Whether the script can have given this reply. */
  readonly fits: (reply: unknown) => boolean;
}

export const script = (text: string, fits: Script['fits']): Script => ({
  text,
  sha1: createHash('sha1').update(text).digest('hex'),
  fits,
});

/** Runs a script on keys and arguments, and gives a reply that fits it. Rejects with StoreError. */
export type Run = (
  script: Script,
  keys: readonly string[],
  args: readonly (string | number)[],
) => Promise<unknown>;

/** Why a script gave no reply. The message repeats nothing of the URL, nor of the server's words. */
export class StoreError extends Error {
  /** The server may have run it all the same. */
  readonly perhapsRun: boolean;
  /** One of its keys holds what the script cannot use; others are as good as ever. */
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
  /** Authorities for rediss://, PEM; undefined: those of Node. */
  readonly ca: readonly string[] | undefined;
  /** Uses a new connection before anybody else does. Where it rejects, the connection is given up. */
  readonly prepare: (run: Run) => Promise<void>;
  /** The server cannot be used; called once until it can be again. `reason` repeats nothing of the URL. */
  readonly failed: (reason: string) => void;
  /** It can be again. */
  readonly recovered: () => void;
  /** It can be used, for the first time; called before `recovered`. */
  readonly connected?: (() => void) | undefined;
}

type Client = ReturnType<typeof createClient>;

/** An error of a script; servers before Redis 7 tell first where it was. */
const WRONG_TYPE =
  /^(?:ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:[0-9]+: )?-?WRONGTYPE\b/;
const UNUSABLE_KEYS = 'a key of this client holds something that is no count (WRONGTYPE)';

/** A script that has no reply by then has failed. Replies come in order, so its connection is given up too. */
const REPLY_MS = 1_000;
/** To connect, encrypt and log in. */
const CONNECT_MS = 2_000;
const FIRST_RETRY_MS = 100;
const LONGEST_RETRY_MS = 5_000;

export type RedisConnection = Awaited<ReturnType<typeof openRedisConnection>>;

/** Resolves after the first attempt to connect, whether it succeeded or not. Throws config_invalid. */
export async function openRedisConnection(options: RedisConnectionOptions) {
  const { prepare, failed, recovered, connected = () => {} } = options;
  const address = parseStoreUrl(options.url, '--limits-store');
  // Loaded here: who does not count in Redis shall not pay for its client.
  const redis = await import('@redis/client');
  const isReply = (thrown: unknown): thrown is ErrorReply => thrown instanceof redis.ErrorReply;
  const closing = new AbortController();
  const { signal } = closing;
  let current: { readonly client: Client; readonly lost: () => void } | undefined;
  /** The last one that was made, in use or not. */
  let attempted: Client | undefined;
  let failing = false;
  let isFirst = true;

  function fail(reason: string): void {
    if (!failing && !signal.aborted) failed(reason);
    failing = true;
  }

  /** Gives a connection up, where it is the one in use. */
  function drop(client: Client, reason: string): void {
    if (current?.client !== client) return;
    const { lost } = current;
    current = undefined;
    client.destroy();
    fail(reason);
    lost();
  }

  async function runOn(client: Client, ...[script, keys, args]: Parameters<Run>): Promise<unknown> {
    const rest = [String(keys.length), ...keys, ...args.map(String)];
    const evaluate = (): Promise<unknown> =>
      client.sendCommand(['EVALSHA', script.sha1, ...rest]).catch((thrown: unknown) => {
        if (isReply(thrown) && thrown.message.startsWith('NOSCRIPT'))
          return client.sendCommand(['EVAL', script.text, ...rest]);
        throw thrown;
      });
    try {
      const reply = await within(REPLY_MS, evaluate());
      // Whatever says it, a proxy in between or another server: it keeps no count for us.
      if (!script.fits(reply)) throw new StoreError('its reply is invalid', true);
      return reply;
    } catch (thrown) {
      if (isReply(thrown) && WRONG_TYPE.test(thrown.message))
        throw new StoreError(UNUSABLE_KEYS, false, true);
      throw new StoreError(reasonOf(thrown, isReply), !isReply(thrown));
    }
  }

  /** The reason why it failed, or undefined. */
  async function connect(lost: () => void): Promise<string | undefined> {
    const client = newClient(redis.createClient, address, options.ca);
    client.on('error', (thrown: unknown) => drop(client, reasonOf(thrown, isReply)));
    attempted = client;
    try {
      await within(CONNECT_MS, client.connect(), signal);
      await prepare((...call) => runOn(client, ...call));
      if (!client.isReady || signal.aborted) throw new StoreError('the connection was lost', false);
    } catch (thrown) {
      client.destroy();
      return reasonOf(thrown, isReply);
    }
    current = { client, lost };
    if (isFirst) connected();
    isFirst = false;
    if (failing) recovered();
    failing = false;
    return undefined;
  }

  /** Connects, again and again. The first attempt that failed or succeeded resolves `tried`. */
  async function stayConnected(tried: () => void): Promise<void> {
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const { promise, resolve: lost } = Promise.withResolvers<void>();
      const reason = await connect(lost);
      tried();
      if (reason === undefined) {
        const since = performance.now();
        await promise;
        // A connection that lived for some time was a good one: the next attempt follows quickly.
        if (performance.now() - since > LONGEST_RETRY_MS) attempt = 0;
      } else fail(reason);
      const wait = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * 2 ** attempt);
      // Replicas that lost the same server do not come back in step.
      await delay(wait * (0.75 + Math.random() / 4), undefined, { signal, ref: false }).catch(() => {});
    }
  }

  const { promise: tried, resolve } = Promise.withResolvers<void>();
  const loop = stayConnected(resolve);
  await tried;
  return {
    /** Rejects at once while there is no connection. An error gives the connection up, unless it is of these keys alone. */
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
  ca: readonly string[] | undefined,
): Client {
  const socket = { host, port, connectTimeout: CONNECT_MS, reconnectStrategy: false } as const;
  return create({
    socket: tls ? { ...socket, tls: true, ...(ca === undefined ? {} : { ca: [...ca] }) } : socket,
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    database,
    RESP: 2, // in 3 the password goes with HELLO, which an old server repeats in its error
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: 'disabled',
    commandOptions: { timeout: 0 }, // covers the wait until a command is written, not that for the reply
  }) as unknown as Client;
}

class NoReply extends Error {}

/** What `promise` gives, or a rejection after `ms` or where `signal` aborts. */
function within<T>(ms: number, promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(new NoReply());
  signal?.addEventListener('abort', abort);
  // Where this process itself was busy, the reply may lie in the socket by now: reading comes before setImmediate.
  const timer = setTimeout(() => setImmediate(reject, new NoReply()), ms);
  return Promise.race([promise, late]).finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  });
}

/** In words of our own: errors of servers repeat commands, and a command may hold the password. */
function reasonOf(thrown: unknown, isReply: (thrown: unknown) => thrown is ErrorReply): string {
  if (thrown instanceof StoreError) return thrown.message;
  if (thrown instanceof NoReply) return 'it does not reply in time';
  const { message, code } = thrown as NodeJS.ErrnoException;
  if (isReply(thrown)) return `it replies with the error ${/^[A-Z]{2,20}\b/.exec(message)?.[0] ?? 'ERR'}`;
  return typeof code === 'string' && /^[A-Z0-9_]{1,60}$/.test(code)
    ? `the connection failed (${code})`
    : 'the connection was lost';
}
