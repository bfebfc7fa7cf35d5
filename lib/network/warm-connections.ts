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
 * - `keeping`: the service is verified. What is missing is opened, what has idled for too long replaced.
 * - `closed`: for good, or because none is wanted ever; nothing is opened, and what was ready is gone.
 */
type State = 'unverified' | 'keeping' | 'closed';

/** Part of the longest idle time by which connections that were opened together are replaced apart. */
const JITTER = 0.2;
/** ms in which the number of connections that were in use at once counts half. */
const HALF_LIFE = 300_000;
/** ms before the next connection is opened after the first failure, and after many. */
const BACK_OFF = { first: 500, longest: 60_000 };
/** ms for which requests that waited for the verification have the processor to themselves. */
const SETTLE = 250;
/** Connections that are opened at the same time: the work of many handshakes would hold up the first request after a start. */
const AT_ONCE = 2;
/** ms between two looks at the connections, at least. */
const SHORTEST_LOOK = 100;

/** ms; less than services, and the routers before them, wait. */
const RENEW_AFTER = 45_000;
/** ms; a connection that has idled for longer was asleep with the machine, and so were our timers. */
const ASLEEP = 2 * RENEW_AFTER;
/** ms; a shorter time limit is not followed, since handshakes would never end. */
const SHORTEST_RENEWAL = 2_000;
/** The part of a time limit of the service that is made use of. */
const SAFE_PART = 0.8;
/** ms for which what was learned of the service's time limit holds. */
const LEARNED_FOR = 600_000;
/** ms; connections closed within that time of each other were closed by a restart and not by a time limit. */
const TOGETHER = 1_000;

const NONE = Number.POSITIVE_INFINITY;

/** How long the service lets a connection idle: what it says, and what it shows by closing connections. */
class IdleLimit {
  #announced = NONE;
  #learned = { limit: NONE, at: 0 };
  #lastClose = { age: 0, at: 0 };

  /** ms of idling after which a connection is replaced. */
  renewAfter(): number {
    const learned = Date.now() - this.#learned.at < LEARNED_FOR ? this.#learned.limit : NONE;
    const safe = SAFE_PART * Math.min(this.#announced, learned);
    return Math.min(RENEW_AFTER, Math.max(SHORTEST_RENEWAL, safe));
  }

  /** The service said for how many ms it keeps idle connections. */
  announce(ms: number): void {
    this.#announced = ms;
  }

  /** The service closed a connection that had idled for `age` ms. Two closed at about the same age, one after the other, show a time limit. */
  learnFrom(age: number): void {
    const [previous, at] = [this.#lastClose, Date.now()];
    this.#lastClose = { age, at };
    const alike = Math.abs(age - previous.age) < age / 5 && at - previous.at > TOGETHER;
    if (alike) this.#learned = { limit: Math.min(age, previous.age), at };
  }
}

/** The connections that were opened ahead, each with the part of the longest idle time for which it is kept. */
const ahead = new WeakMap<object, number>();

/** Whether a connection was opened ahead: the service may have closed it before its first request. */
export const openedAhead = (socket: object): boolean => ahead.has(socket);

/**
 * Keeps as many idle connections as were lately in use at once, at least one and at most `limit`. Those that the agent kept
 * after a request count too. Each is replaced before it has idled for too long; failures are retried ever more slowly, in
 * silence, since the next request reports what is wrong.
 */
export class WarmConnections {
  readonly #deps: WarmDeps;
  readonly #idleLimit = new IdleLimit();
  #state: State;
  /** How many are being opened; `#closed` gives them up. */
  #opening = 0;
  readonly #closed = new AbortController();
  /** Open, and waiting for their first request; the newest is the last. */
  readonly #ready = new Set<TLSSocket>();
  /** Since when those that are ready, or wait in the agent, idle. */
  readonly #idleSince = new WeakMap<object, number>();
  /** The most that were in use at once; until use shows that fewer are enough, as many as are allowed. */
  #peak: { readonly connections: number; readonly at: number };
  #failures = 0;
  /** None is opened before; ms since 1970. */
  #pausedUntil = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: WarmDeps) {
    this.#deps = deps;
    this.#state = deps.limit === 0 ? 'closed' : 'unverified';
    this.#peak = { connections: deps.limit, at: Date.now() };
  }

  /** Opens one, if there is none: the service is about to be verified. */
  prepare(): void {
    if (this.#state !== 'closed' && this.#ready.size + this.#opening === 0) void this.#launch();
  }

  /** Whether connections are kept ready: while the service is verified. */
  keep(verified: boolean): void {
    if (this.#state === 'closed') return;
    const begins = verified && this.#state !== 'keeping';
    if (begins) this.#pausedUntil = Math.max(this.#pausedUntil, Date.now() + SETTLE);
    this.#state = verified ? 'keeping' : 'unverified';
    this.#tendIn(0);
  }

  /** One that is ready, the newest; undefined: none is. */
  take(): TLSSocket | undefined {
    for (const socket of [...this.#ready].reverse()) {
      this.#ready.delete(socket);
      socket.off('data', refuseUnasked);
      if (socket.writable && this.#idleFor(socket) <= ASLEEP) return socket.ref();
      socket.destroy();
    }
    return undefined;
  }

  /** A request gets a connection, of whatever kind. */
  began(): void {
    const connections = this.#inUse() + 1; // the agent counts it next
    if (connections >= this.#lately()) this.#peak = { connections, at: Date.now() };
    if (this.#ready.size === 0) this.#tendIn(0);
  }

  /** A connection waits in the agent for its next request. */
  idles(socket: object): void {
    this.#idleSince.set(socket, Date.now());
  }

  /** The service said for how many ms it keeps idle connections. */
  announce(ms: number): void {
    this.#idleLimit.announce(ms);
  }

  /** Ends those that are ready or being opened. */
  close(): void {
    this.#state = 'closed';
    clearTimeout(this.#timer);
    this.#closed.abort();
    for (const socket of this.#ready) socket.destroy();
    this.#ready.clear();
  }

  /** Opens what is missing, and closes what has idled for too long once there is enough without it. */
  #tend(): void {
    const idle = [...this.#ready, ...socketsIn(this.#deps.agent.freeSockets)];
    const overdue = idle.filter((socket) => this.#isOverdue(socket));
    const missing = this.#wanted() - (idle.length - overdue.length);
    if (overdue.length > 0) this.#failures = 0; // the service keeps what it accepts
    if (missing <= 0) for (const socket of overdue) this.#drop(socket);
    const pause = this.#pausedUntil - Date.now();
    const begin = pause > 0 ? 0 : Math.min(missing, AT_ONCE) - this.#opening;
    for (let begun = 0; begun < begin; begun++) void this.#launch();
    const look = Math.min(this.#idleLimit.renewAfter() / 10, pause > 0 ? pause : Number.POSITIVE_INFINITY);
    this.#tendIn(Math.max(SHORTEST_LOOK, look));
  }

  /** Requests of this turn come first: no connection is opened within it. */
  #tendIn(ms: number): void {
    clearTimeout(this.#timer);
    if (this.#state === 'keeping') this.#timer = setTimeout(() => this.#tend(), ms).unref();
  }

  #wanted(): number {
    return Math.min(this.#deps.limit, Math.max(1, Math.round(this.#lately()) - this.#inUse()));
  }

  /** How many were lately in use at once. */
  #lately(): number {
    return this.#peak.connections * 2 ** ((this.#peak.at - Date.now()) / HALF_LIFE);
  }

  #inUse(): number {
    return socketsIn(this.#deps.agent.sockets).length;
  }

  #idleFor(socket: TLSSocket): number {
    return Date.now() - (this.#idleSince.get(socket) ?? 0);
  }

  #isOverdue(socket: TLSSocket): boolean {
    return this.#idleFor(socket) >= this.#idleLimit.renewAfter() * (ahead.get(socket) ?? 1);
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
    ahead.set(socket, 1 - JITTER * Math.random());
    this.#idleSince.set(socket, Date.now());
    this.#ready.add(socket);
    socket.once('close', () => this.#lost(socket));
    socket.on('data', refuseUnasked).resume().unref();
  }

  /** A connection has closed; where it was ready, the service did it. */
  #lost(socket: TLSSocket): void {
    if (!this.#ready.delete(socket)) return;
    const age = this.#idleFor(socket);
    if (age < SHORTEST_RENEWAL) this.#failed();
    else this.#failures = 0;
    this.#idleLimit.learnFrom(age);
    this.#tendIn(0);
  }

  #failed(): void {
    const pause = Math.min(BACK_OFF.first * 2 ** this.#failures++, BACK_OFF.longest);
    this.#pausedUntil = Date.now() + pause * (1 - JITTER * Math.random());
  }

  #drop(socket: TLSSocket): void {
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
