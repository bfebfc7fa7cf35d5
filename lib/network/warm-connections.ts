/**
 * Connections that are opened ahead of the requests that will need them, so that no request waits for a
 * handshake.
 */
import type { Agent } from 'node:https';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../clock.ts';

interface WarmDeps {
  /** At most so many connections are opened ahead; 0: none. */
  readonly limit: number;
  /**
   * Opens a connection as requests need it: its certificate is accepted, its errors are listened for. Rejects
   * if there is none; `signal` gives it up.
   */
  readonly open: (signal: AbortSignal) => Promise<TLSSocket>;
  /** The agent that has the connections which are in use or wait for their next request. */
  readonly agent: Agent;
  readonly clock: Clock;
}

/**
 * - `unverified`: the service is not verified yet, or no longer. `prepare` opens one connection; none is
 *   opened or renewed otherwise.
 * - `keeping`: the service is verified. Missing connections are opened, and those that have idled for their
 *   term are replaced.
 * - `closed`: at the end, or from the start with a limit of 0. No connection is ready, and none is opened.
 */
type State = 'unverified' | 'keeping' | 'closed';

/**
 * A connection that has idled for this many times its term was not replaced: the machine slept, and the other
 * end is gone. Such a connection is closed, and carries no request.
 */
const OUTLIVED = 2;
/** Minutes for which the highest number of connections in use at once is remembered. */
const LATELY = 5;
/**
 * Most connections that are opened at the same time. More handshakes at once would hold up the first request
 * after a start.
 */
const AT_ONCE = 2;

/** The connections that were opened ahead. */
const ahead = new WeakSet<object>();

/** Whether a connection was opened ahead: the service may have closed it before its first request. */
export const openedAhead = (socket: object): boolean => ahead.has(socket);

/**
 * Keeps connections idle: so many that, with those in use, they are as many as were in use at once in the
 * last five minutes. At least one is idle, and at most `limit` are. Connections that the agent kept after a
 * request count as idle ones, too. Each connection is replaced before the service closes it. Failures are
 * retried ever more slowly, in silence, because the next request reports what is wrong.
 */
export class WarmConnections {
  readonly #deps: WarmDeps;
  #state: State;
  /** How many connections are being opened; `#closed` gives them up. */
  #opening = 0;
  readonly #closed = new AbortController();
  /** Open connections that wait for their first request; the newest is the last. */
  readonly #ready = new Set<TLSSocket>();
  /** Since when a connection idles that is ready or waits in the agent. */
  readonly #idleSince = new WeakMap<object, number>();
  /** ms of idling after which a connection is replaced. */
  #renewAfter: number;
  /**
   * The highest number of connections in use at once, in each of the last minutes. Minutes are counted from
   * 1970; the newest is the last.
   */
  #peaks: { readonly minute: number; connections: number }[] = [];
  /** ms since 1970; when a request last looked for outlived connections. */
  #lookedAt = 0;
  #failures = 0;
  /** ms since 1970; when a connection last failed, and for how many ms none is opened after that. */
  #failedAt = 0;
  #pause = 0;
  #cancelTend = (): void => {};

  constructor(deps: WarmDeps) {
    this.#deps = deps;
    this.#renewAfter = deps.clock.times.warmRenew;
    this.#state = deps.limit === 0 ? 'closed' : 'unverified';
    this.#used(deps.limit); // applications begin with several requests at once
  }

  /** Opens a connection if there is none, because the service is about to be verified. */
  prepare(): void {
    if (this.#state !== 'closed' && this.#ready.size + this.#opening === 0) void this.#launch();
  }

  /** Says whether the service is verified: connections are kept ready while it is. */
  keep(verified: boolean): void {
    if (this.#state === 'closed') return;
    this.#state = verified ? 'keeping' : 'unverified';
    this.#tendIn(0);
  }

  /** Takes the newest connection that is ready and can be relied on; undefined: there is none. */
  take(): TLSSocket | undefined {
    for (const socket of [...this.#ready].reverse()) {
      this.#ready.delete(socket);
      socket.off('data', refuseUnasked);
      this.#tendIn(0);
      if (socket.writable && !this.#isOutlived(socket)) return socket.ref();
      socket.destroy();
    }
    return undefined;
  }

  /**
   * Closes the outlived connections in the agent, which hands out whatever it has. To be called before each
   * request; looks at the connections only if the last look is a second old.
   */
  dropOutlived(): void {
    const { clock } = this.#deps;
    if (this.#since(this.#lookedAt) < clock.times.warmLook) return;
    this.#lookedAt = clock.now();
    for (const socket of socketsIn(this.#deps.agent.freeSockets))
      if (this.#isOutlived(socket)) this.#drop(socket);
  }

  /** Notes that a request gets a connection, of whatever kind. */
  began(): void {
    this.#used(this.#inUse() + 1); // the agent counts it next
  }

  /** Notes that a connection waits in the agent for its next request. */
  idles(socket: object): void {
    this.#idleSince.set(socket, this.#deps.clock.now());
  }

  /** Notes for how many ms the service says that it keeps idle connections. */
  announce(ms: number): void {
    const { warmRenew, warmYoung, warmEarlier } = this.#deps.clock.times;
    this.#renewAfter = Math.min(warmRenew, Math.max(warmYoung, ms - warmEarlier));
  }

  /** Ends the connections that are ready or being opened. */
  close(): void {
    this.#state = 'closed';
    this.#cancelTend();
    this.#closed.abort();
    for (const socket of this.#ready) socket.destroy();
    this.#ready.clear();
  }

  /**
   * Opens missing connections, and closes those that have idled for their term once there are enough without
   * them.
   */
  #tend(): void {
    const inUse = this.#inUse();
    this.#used(inUse);
    const idle = [...this.#ready, ...socketsIn(this.#deps.agent.freeSockets)];
    const overdue = idle.filter((socket) => this.#idleFor(socket) >= this.#renewAfter);
    const lately = Math.max(...this.#peaks.map(({ connections }) => connections));
    const wanted = Math.min(this.#deps.limit, Math.max(1, lately - inUse));
    const missing = wanted - (idle.length - overdue.length);
    if (missing <= 0) for (const socket of overdue) this.#drop(socket);
    if (this.#since(this.#failedAt) >= this.#pause) {
      while (this.#opening < Math.min(missing, AT_ONCE)) void this.#launch();
    }
    this.#tendIn(this.#deps.clock.times.warmLook);
  }

  /**
   * Looks at the connections in `ms` ms. Requests of this turn of the event loop come first: no connection is
   * opened within it.
   */
  #tendIn(ms: number): void {
    this.#cancelTend();
    if (this.#state === 'keeping') this.#cancelTend = this.#deps.clock.after(ms, () => this.#tend());
  }

  /** Notes how many connections are in use at once. */
  #used(connections: number): void {
    const now = Math.floor(this.#deps.clock.now() / 60_000);
    const newest = this.#peaks.at(-1);
    if (newest?.minute === now) newest.connections = Math.max(newest.connections, connections);
    else {
      const lately = this.#peaks.filter(({ minute }) => minute >= now - LATELY && minute < now);
      this.#peaks = [...lately, { minute: now, connections }];
    }
  }

  #inUse(): number {
    return socketsIn(this.#deps.agent.sockets).length;
  }

  #idleFor(socket: TLSSocket): number {
    return this.#since(this.#idleSince.get(socket) ?? 0);
  }

  #isOutlived(socket: TLSSocket): boolean {
    return this.#idleFor(socket) >= OUTLIVED * this.#renewAfter;
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
    this.#idleSince.set(socket, this.#deps.clock.now());
    this.#ready.add(socket);
    socket.once('close', () => this.#lost(socket));
    socket.on('data', refuseUnasked).resume().unref();
  }

  /** Called when a connection has closed. If it was ready, the service closed it. */
  #lost(socket: TLSSocket): void {
    if (!this.#ready.delete(socket)) return;
    if (this.#idleFor(socket) < this.#deps.clock.times.warmYoung) this.#failed();
    else this.#failures = 0;
    this.#tendIn(0);
  }

  #failed(): void {
    const { warmFirstBackoff, warmLongestBackoff } = this.#deps.clock.times;
    this.#pause = Math.min(warmFirstBackoff * 2 ** this.#failures++, warmLongestBackoff);
    this.#failedAt = this.#deps.clock.now();
  }

  #drop(socket: TLSSocket): void {
    this.#failures = 0; // the service kept the connection for its term, or the machine has just woken
    this.#ready.delete(socket);
    socket.destroy();
    // Otherwise the agent may hand it out until it hears of its end (docs/hazards.md 32).
    socket.emit('agentRemove');
  }

  /**
   * ms since that time, ms since 1970, on the clock that goes on while the machine sleeps. Infinity if that
   * clock was set back: nobody knows how long it was.
   */
  #since(time: number): number {
    const ms = this.#deps.clock.now() - time;
    return ms < 0 ? Number.POSITIVE_INFINITY : ms;
  }
}

/** All connections in a table of an agent. */
const socketsIn = (table: Agent['sockets' | 'freeSockets']): TLSSocket[] =>
  Object.values(table).flatMap((sockets = []) => sockets as TLSSocket[]);

/** Called when the service speaks before it was asked: this is a refusal, and the end of the connection. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
