/** Connections that are opened ahead of the requests that will need them, so that no request waits for a handshake. */
import type { Agent } from 'node:https';
import type { TLSSocket } from 'node:tls';
import { type Http2Session, openHttp2Session } from './http2-session.ts';

export interface WarmOptions {
  /** At most that many are opened ahead; 0: none. */
  readonly limit: number;
  /** ms of idling after which a connection is replaced: less than services and the routers before them wait. Default 45 s. */
  readonly renewAfter?: number;
}

interface WarmDeps extends WarmOptions {
  /**
   * A connection as requests need it, its certificate accepted; `offerHttp2`: the server may choose HTTP/2 for it. Rejects where there
   * is none; `signal` gives it up.
   */
  readonly open: (signal: AbortSignal, offerHttp2: boolean) => Promise<TLSSocket>;
  /** ms in which an HTTP/2 server sends its SETTINGS. */
  readonly connectTimeout: number;
  /** The connections that wait for their next request or are in use belong to it. */
  readonly agent: Agent;
  /** ms; the wall clock, which goes on while the machine sleeps. */
  readonly now?: () => number;
}

interface Idle {
  readonly socket: TLSSocket;
  /** When it began to idle. */
  readonly since: number;
}

export type WarmConnections = ReturnType<typeof createWarmConnections>;

const RENEW_AFTER = 45_000;
/** The part of a time limit of the service that is made use of. */
const SAFE_PART = 0.8;
/** Shares of the time after which connections that were opened together are replaced. */
const JITTER = 0.2;
/** ms; a shorter time limit is not followed, since handshakes would never end. */
const SHORTEST_RENEWAL = 2_000;
/** ms for which what was learned of the service's time limit holds. */
const LEARNED_FOR = 600_000;
/** ms; connections closed within that time of each other were closed by a restart and not by a time limit. */
const TOGETHER = 1_000;
/** ms in which the number of connections that were in use at once counts half. */
const HALF_LIFE = 300_000;
/** ms before the next connection is opened after the first failure, and after many. */
const BACK_OFF = { first: 500, longest: 60_000 };

/** ms for which requests that waited for the verification have the processor to themselves. */
const SETTLE = 250;
/** Connections that are opened at the same time: the work of many handshakes would hold up the first request after a start. */
const AT_ONCE = 2;

const ahead = new WeakSet<object>();

/** Whether a connection was opened ahead: the service may have closed it before its first request. */
export function openedAhead(socket: object): boolean {
  return ahead.has(socket);
}

/**
 * Keeps as many idle connections as were lately in use at once, at least one and at most `limit`. Those that the agent kept
 * after a request count too. Each is replaced before it has idled for too long; failures are retried ever more slowly, in
 * silence, since the next request reports what is wrong. Where the server chooses HTTP/2, one connection is the session that requests
 * share, and one more is kept for those that do not fit into it.
 */
export function createWarmConnections(deps: WarmDeps) {
  const { open, connectTimeout, agent, limit, renewAfter = RENEW_AFTER, now = Date.now } = deps;
  const ready: Idle[] = [];
  const opening = new Set<AbortController>();
  const usedSince = new WeakMap<object, number>();
  const jitters = new WeakMap<object, number>();
  const sessions = new Set<Http2Session>(); // those that finish their streams too
  let session: Http2Session | undefined; // that takes requests
  let speaksHttp2 = false; // the server chose it lately
  let offering = false;
  let keeping = false;
  let closed = false;
  let peak = { connections: limit, at: now() }; // until use shows that fewer are enough
  let announced = Number.POSITIVE_INFINITY;
  let learned = { limit: Number.POSITIVE_INFINITY, at: 0 };
  let lastClose = { age: 0, at: 0 };
  let failures = 0;
  let retryAt = 0;
  let sessionJitter = 1;
  let timer: NodeJS.Timeout | undefined;

  /** ms of idling after which a connection is replaced. */
  function longestIdle(): number {
    const seen = now() - learned.at < LEARNED_FOR ? learned.limit : Number.POSITIVE_INFINITY;
    return Math.min(renewAfter, Math.max(SHORTEST_RENEWAL, SAFE_PART * Math.min(announced, seen)));
  }

  const isOverdue = ({ socket, since }: Idle): boolean =>
    now() - since >= longestIdle() * (jitters.get(socket) ?? 1);

  /** Connections that idle in the agent after a request. */
  const used = (): Idle[] =>
    Object.values(agent.freeSockets).flatMap((sockets) =>
      (sockets ?? []).map((socket) => ({ socket: socket as TLSSocket, since: usedSince.get(socket) ?? 0 })),
    );

  function lately(): number {
    return peak.connections * 2 ** ((peak.at - now()) / HALF_LIFE);
  }

  const inUse = (): number =>
    Object.values(agent.sockets).reduce((sum, sockets) => sum + (sockets?.length ?? 0), 0);

  const wanted = (): number => Math.min(session ? 1 : limit, Math.max(1, Math.round(lately()) - inUse()));

  /** Another session is needed: it ended, or has idled for too long. */
  function isSessionDue(): boolean {
    if (session === undefined) return speaksHttp2;
    return now() - (session.idleSince() ?? now()) >= longestIdle() * sessionJitter;
  }

  /** Opens what is missing, and closes what idled for too long once there is enough without it. */
  function tend(): void {
    clearTimeout(timer);
    timer = undefined;
    if (!keeping) return;
    const idle = [...ready, ...used()];
    const fresh = idle.filter((each) => !isOverdue(each)).length;
    const overdue = idle.filter(isOverdue);
    if (overdue.length > 0) failures = 0; // the service keeps what it accepts
    if (fresh >= wanted()) for (const { socket } of overdue) drop(socket);
    const wait = retryAt - now();
    const missing = Math.min(wanted() - fresh, AT_ONCE) - opening.size;
    if (wait <= 0) for (let begun = 0; begun < missing; begun++) void launch();
    if (wait <= 0 && isSessionDue() && !offering) void launch();
    const soonest = Math.max(100, Math.min(longestIdle() / 10, wait > 0 ? wait : Number.POSITIVE_INFINITY));
    timer = setTimeout(tend, soonest).unref();
  }

  function tendSoon(): void {
    if (!keeping) return;
    clearTimeout(timer);
    timer = setTimeout(tend, 0).unref(); // after the requests of this turn
  }

  function drop(socket: TLSSocket): void {
    socket.destroy();
    socket.emit('agentRemove'); // or the agent may hand it out until it hears of its end
    forget(socket);
  }

  function forget(socket: TLSSocket): Idle | undefined {
    const index = ready.findIndex((each) => each.socket === socket);
    return index < 0 ? undefined : ready.splice(index, 1)[0];
  }

  async function launch(): Promise<void> {
    const giveUp = new AbortController();
    opening.add(giveUp);
    const offer = !offering && (session === undefined || isSessionDue());
    offering ||= offer;
    try {
      const socket = await open(giveUp.signal, offer);
      if (offer) speaksHttp2 = socket.alpnProtocol === 'h2';
      if (closed) socket.destroy();
      else if (socket.alpnProtocol === 'h2') await share(socket);
      else keep(socket);
    } catch {
      failed();
    }
    if (offer) offering = false;
    opening.delete(giveUp);
    tendSoon();
  }

  function failed(): void {
    const delay = Math.min(BACK_OFF.first * 2 ** failures++, BACK_OFF.longest);
    retryAt = now() + delay * (1 - JITTER * Math.random());
  }

  function keep(socket: TLSSocket): void {
    ahead.add(socket);
    jitters.set(socket, 1 - JITTER * Math.random());
    ready.push({ socket, since: now() });
    socket.on('error', ignore).once('close', lost).once('data', unasked).resume().unref();
  }

  /** Makes of a connection the session that requests share; the one before it finishes its streams. */
  async function share(socket: TLSSocket): Promise<void> {
    const opened = await openHttp2Session(socket, { timeout: connectTimeout });
    if (closed || !opened.isUsable()) return opened.destroy();
    session?.close();
    session = opened;
    sessionJitter = 1 - JITTER * Math.random();
    sessions.add(opened);
    const begun = now();
    opened.onceGone(() => {
      if (session !== opened) return;
      session = undefined;
      learnFrom(now() - begun);
      tendSoon();
    });
    opened.onceClosed(() => sessions.delete(opened));
  }

  /** The service speaks before it was asked: a refusal, and the end of this connection. */
  function unasked(this: TLSSocket): void {
    this.destroy();
  }

  function lost(this: TLSSocket): void {
    const spare = forget(this);
    if (spare === undefined) return;
    learnFrom(now() - spare.since);
    tendSoon();
  }

  /** Two that were closed at the same age, one after the other, show a time limit. */
  function learnFrom(age: number): void {
    if (age < SHORTEST_RENEWAL) failed();
    else failures = 0;
    const previous = lastClose;
    lastClose = { age, at: now() };
    const alike = Math.abs(age - previous.age) < age / 5 && lastClose.at - previous.at > TOGETHER;
    if (alike) learned = { limit: Math.min(age, previous.age), at: now() };
  }

  return {
    /** Opens one, if there is none: the service is about to be verified. */
    prepare(): void {
      if (!closed && ready.length + opening.size === 0) void launch();
    },
    /** Whether connections are kept ready: while the service is verified. */
    keep(verified: boolean): void {
      if (verified && !keeping) retryAt = Math.max(retryAt, now() + SETTLE);
      keeping = verified && !closed;
      tendSoon();
    },
    /** One that is ready, the newest; undefined: none is. */
    take(): TLSSocket | undefined {
      for (let spare = ready.pop(); spare !== undefined; spare = ready.pop()) {
        const { socket } = spare;
        socket.off('close', lost).off('data', unasked);
        const asleep = now() - spare.since > 2 * renewAfter; // so was the machine
        if (socket.writable && !asleep) return socket.ref();
        socket.destroy();
      }
      return undefined;
    },
    /** The HTTP/2 session that takes requests; undefined: none is. */
    session(): Http2Session | undefined {
      const asleep = now() - (session?.idleSince() ?? now()) > 2 * renewAfter; // so was the machine
      if (asleep) session?.destroy();
      return asleep ? undefined : session;
    },
    /** A request gets a connection of its own, of whatever kind. */
    began(): void {
      const connections = inUse() + 1; // the agent counts it next
      if (connections >= lately()) peak = { connections, at: now() };
      if (ready.length === 0) tendSoon();
    },
    /** A connection waits in the agent for its next request. */
    idles(socket: object): void {
      usedSince.set(socket, now());
    },
    /** The service said for how many ms it keeps idle connections. */
    announce(ms: number): void {
      announced = ms;
    },
    close(): void {
      closed = true;
      keeping = false;
      clearTimeout(timer);
      for (const giveUp of opening) giveUp.abort();
      for (const { socket } of ready.splice(0)) socket.destroy();
      for (const each of sessions) each.destroy();
    },
  };
}

function ignore(): void {}
