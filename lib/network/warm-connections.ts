/** Connections that are opened ahead of the requests that will need them, so that no request waits for a handshake. */
import type { Agent } from 'node:https';
import type { TLSSocket } from 'node:tls';

interface WarmDeps {
  /** At most that many are opened ahead; 0: none. */
  readonly limit: number;
  /** A connection as requests need it, its certificate accepted, its errors listened for. Rejects where there is none; `signal` gives it up. */
  readonly open: (signal: AbortSignal) => Promise<TLSSocket>;
  /** The connections that wait for their next request or are in use belong to it. */
  readonly agent: Agent;
}

/**
 * - `unverified`: the service is not verified yet, or no longer. `prepare` opens one connection; none is opened or renewed otherwise.
 * - `keeping`: the service is verified. Missing connections are opened, and those that have idled for their term are replaced.
 * - `closed`: at the end, or from the start with a limit of 0. No connection is ready, and none is opened.
 */
type State = 'unverified' | 'keeping' | 'closed';

/** ms of idling after which a connection is replaced: services, and the routers before them, wait for longer. */
const RENEW_AFTER = 45_000;
/** ms by which a connection is replaced earlier than the service says that it will close it. */
const EARLIER = 2_000;
/** ms; a connection that the service closes sooner counts as a failure. None is replaced sooner: handshakes would never end. */
const YOUNG = 2_000;
/** Times its term that a connection has idled if its replacement did not happen: the machine slept, and whoever was at the other end is gone. */
const OUTLIVED = 2;
/** ms before the next connection is opened after a failure, doubled with each that follows, up to the longest. */
const BACK_OFF = { first: 500, longest: 60_000 };
/** Minutes for which the most connections that were in use at once count. */
const LATELY = 5;
/** Connections that are opened at the same time: the work of many handshakes would hold up the first request after a start. */
const AT_ONCE = 2;
/** ms between two looks at the connections. */
const LOOK = 1_000;

/** The connections that were opened ahead. */
const ahead = new WeakSet<object>();

/** Whether a connection was opened ahead: the service may have closed it before its first request. */
export const openedAhead = (socket: object): boolean => ahead.has(socket);

/**
 * Keeps so many connections idle that there are as many with those in use as were in use at once in the last five minutes: at least
 * one idle, and at most `limit`. Those that the agent kept after a request count too. Each is replaced before the service closes it.
 * Failures are retried ever more slowly, in silence, since the next request reports what is wrong.
 */
export class WarmConnections {
  readonly #deps: WarmDeps;
  #state: State;
  /** How many are being opened; `#closed` gives them up. */
  #opening = 0;
  readonly #closed = new AbortController();
  /** Open, and waiting for their first request; the newest is the last. */
  readonly #ready = new Set<TLSSocket>();
  /** Since when those that are ready, or wait in the agent, idle. */
  readonly #idleSince = new WeakMap<object, number>();
  /** ms of idling after which one is replaced. */
  #renewAfter = RENEW_AFTER;
  /** The most that were in use at once in each of the last minutes, counted from 1970; the newest is the last. */
  #peaks: { readonly minute: number; connections: number }[] = [];
  #failures = 0;
  /** None is opened before; ms since 1970. */
  #pausedUntil = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: WarmDeps) {
    this.#deps = deps;
    this.#state = deps.limit === 0 ? 'closed' : 'unverified';
    this.#used(deps.limit); // applications begin with several requests at once
  }

  /** Opens one, if there is none: the service is about to be verified. */
  prepare(): void {
    if (this.#state !== 'closed' && this.#ready.size + this.#opening === 0) void this.#launch();
  }

  /** Whether connections are kept ready: while the service is verified. */
  keep(verified: boolean): void {
    if (this.#state === 'closed') return;
    this.#state = verified ? 'keeping' : 'unverified';
    this.#tendIn(0);
  }

  /** One that is ready and can be relied on, the newest; undefined: none is. */
  take(): TLSSocket | undefined {
    for (const socket of [...this.#ready].reverse()) {
      this.#ready.delete(socket);
      socket.off('data', refuseUnasked);
      this.#tendIn(0);
      if (socket.writable && this.#idleFor(socket) < OUTLIVED * this.#renewAfter) return socket.ref();
      socket.destroy();
    }
    return undefined;
  }

  /** A request gets a connection, of whatever kind. */
  began(): void {
    this.#used(this.#inUse() + 1); // the agent counts it next
  }

  /** A connection waits in the agent for its next request. */
  idles(socket: object): void {
    this.#idleSince.set(socket, Date.now());
  }

  /** The service said for how many ms it keeps idle connections. */
  announce(ms: number): void {
    this.#renewAfter = Math.min(RENEW_AFTER, Math.max(YOUNG, ms - EARLIER));
  }

  /** Ends those that are ready or being opened. */
  close(): void {
    this.#state = 'closed';
    clearTimeout(this.#timer);
    this.#closed.abort();
    for (const socket of this.#ready) socket.destroy();
    this.#ready.clear();
  }

  /** Opens what is missing, and closes what has idled for its time once there is enough without it. */
  #tend(): void {
    const inUse = this.#inUse();
    this.#used(inUse);
    const idle = [...this.#ready, ...socketsIn(this.#deps.agent.freeSockets)];
    const overdue = idle.filter((socket) => this.#idleFor(socket) >= this.#renewAfter);
    const lately = Math.max(...this.#peaks.map(({ connections }) => connections));
    const wanted = Math.min(this.#deps.limit, Math.max(1, lately - inUse));
    const missing = wanted - (idle.length - overdue.length);
    if (missing <= 0) for (const socket of overdue) this.#drop(socket);
    if (Date.now() >= this.#pausedUntil) {
      while (this.#opening < Math.min(missing, AT_ONCE)) void this.#launch();
    }
    this.#tendIn(LOOK);
  }

  /** Requests of this turn come first: no connection is opened within it. */
  #tendIn(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#state === 'keeping') this.#timer = setTimeout(() => this.#tend(), ms).unref();
  }

  /** So many are in use at once. */
  #used(connections: number): void {
    const now = Math.floor(Date.now() / 60_000);
    const newest = this.#peaks.at(-1);
    if (newest?.minute === now) newest.connections = Math.max(newest.connections, connections);
    else {
      const lately = this.#peaks.filter(({ minute }) => minute >= now - LATELY);
      this.#peaks = [...lately, { minute: now, connections }];
    }
  }

  #inUse(): number {
    return socketsIn(this.#deps.agent.sockets).length;
  }

  #idleFor(socket: TLSSocket): number {
    return Date.now() - (this.#idleSince.get(socket) ?? 0);
  }

  async #launch(): Promise<void> {
    this.#opening++;
    try {
      this.#opened(await this.#deps.open(this.#closed.signal));
    } catch {
      this.#failed();
    }
    this.#opening--;
    this.#tendIn(0);
  }

  #opened(socket: TLSSocket): void {
    if (this.#state === 'closed') return void socket.destroy();
    ahead.add(socket);
    this.#idleSince.set(socket, Date.now());
    this.#ready.add(socket);
    socket.once('close', () => this.#lost(socket));
    socket.on('data', refuseUnasked).resume().unref();
  }

  /** A connection has closed; where it was ready, the service did it. */
  #lost(socket: TLSSocket): void {
    if (!this.#ready.delete(socket)) return;
    if (this.#idleFor(socket) < YOUNG) this.#failed();
    else this.#failures = 0;
    this.#tendIn(0);
  }

  #failed(): void {
    const pause = Math.min(BACK_OFF.first * 2 ** this.#failures++, BACK_OFF.longest);
    this.#pausedUntil = Date.now() + pause;
  }

  #drop(socket: TLSSocket): void {
    this.#failures = 0; // the service kept it for its time
    this.#ready.delete(socket);
    socket.destroy();
    socket.emit('agentRemove'); // or the agent may hand it out until it hears of its end (docs/hazards.md 32)
  }
}

/** All connections of a table of an agent's. */
const socketsIn = (table: Agent['sockets' | 'freeSockets']): TLSSocket[] =>
  Object.values(table).flatMap((sockets = []) => sockets as TLSSocket[]);

/** The service speaks before it was asked: a refusal, and the end of this connection. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
