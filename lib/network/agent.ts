/** The connections for encrypted requests, some of which are opened before a request comes. */
import { Agent, type AgentOptions } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { type Clock, every } from '../clock.ts';
import type { Through } from './outbound-proxy.ts';

/** The only place that an agent connects to. `count`: how many idle connections are kept ready. */
export interface Service {
  readonly host: string;
  readonly port: number;
  readonly count: number;
}

type CreateConnection = Parameters<Agent['createConnection']>;
type Connected = (error: Error | null, socket?: TLSSocket) => void;

/**
 * Opens connections to the service. After `keep(true)` the agent keeps `count` connections idle. Some are
 * left from requests, some are opened ahead. A connection that was idle for `warmRenew` gets no request: its
 * other end may be gone. If opening ahead fails, the agent pauses: the next request reports what is wrong.
 */
export class ServiceAgent extends Agent {
  readonly #service: Service;
  readonly #through: Through;
  readonly #clock: Clock;
  /** Connections that were opened ahead and have had no request. Some may still be in their handshake. */
  readonly #ahead = new Set<TLSSocket>();
  /** When each connection became idle, in ms since 1970: the wall clock goes on while the machine sleeps. */
  readonly #idleSince = new WeakMap<Duplex, number>();
  #lookedAt = 0; // when idle connections were last checked, in ms since 1970
  #stopLooking: (() => void) | undefined;
  /** Until this time (monotonic clock) no connection is opened ahead; Infinity while one is being opened. */
  #pausedUntil = 0;

  constructor(options: AgentOptions, service: Service, through: Through, clock: Clock) {
    const { host, port } = service;
    // The host and port override the options of a request, so that every connection goes to the service.
    super({ ...options, host, port, servername: isIP(host) ? '' : host });
    this.#service = service;
    this.#through = through;
    this.#clock = clock;
  }

  /** Node pools connections under this fixed name: all connections lead to one service. */
  override getName(): string {
    return 'service';
  }

  override createConnection(options: CreateConnection[0], callback?: CreateConnection[1]): undefined {
    const ready = [...this.#ahead].findLast((each) => each.authorized && each.writable);
    if (ready === undefined) return this.#connect(options, callback as Connected);
    this.#ahead.delete(ready.off('data', refuseUnasked));
    callback?.(null, ready.ref());
  }

  /** Returns whether the connection is kept, although Node's type declares no return value. */
  override keepSocketAlive(socket: Duplex): boolean {
    this.#idleSince.set(socket, this.#clock.now());
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override destroy(): void {
    this.keep(false);
    for (const socket of this.#ahead) socket.destroy();
    super.destroy();
  }

  /** Starts or stops keeping idle connections ready. `ready`: whether the service is verified. */
  keep(ready: boolean): void {
    const looks = ready && this.#service.count > 0;
    if (looks === (this.#stopLooking !== undefined)) return;
    this.#stopLooking?.();
    const { warmLook } = this.#clock.times;
    this.#stopLooking = looks ? every(this.#clock, warmLook, () => this.#look()) : undefined;
    if (looks) this.#look();
  }

  /** Closes connections that have idled for too long. Called before each request; acts once a second. */
  dropOutlived(): void {
    const now = this.#clock.now();
    if (Math.abs(now - this.#lookedAt) < this.#clock.times.warmLook) return;
    this.#lookedAt = now;
    const kept = Object.values(this.freeSockets).flatMap((sockets = []) => sockets as TLSSocket[]);
    for (const socket of [...kept, ...this.#ahead]) {
      // If the clock was set back, the difference counts as idle time.
      const idle = Math.abs(now - (this.#idleSince.get(socket) as number));
      if (idle < this.#clock.times.warmRenew) continue;
      this.#ahead.delete(socket.destroy());
      socket.emit('agentRemove'); // docs/architecture.md H32
    }
  }

  /** Opens a connection if one is missing. Opening several at a time would delay a request. */
  #look(): void {
    this.dropOutlived();
    const clock = this.#clock;
    const idle = Object.values(this.freeSockets).flat().length + this.#ahead.size;
    if (idle >= this.#service.count || clock.monotonic() < this.#pausedUntil) return;
    const probe = { keepAlive: true, keepAliveInitialDelay: clock.times.keepAliveProbe };
    const failed = (): void => {
      this.#pausedUntil = clock.monotonic() + clock.times.warmPause;
    };
    this.#pausedUntil = Number.POSITIVE_INFINITY;
    this.#connect({ ...this.options, ...probe }, (_error, socket) => {
      if (socket === undefined) return failed();
      this.#pausedUntil = 0;
      if (this.#stopLooking === undefined) return void socket.destroy();
      this.#idleSince.set(socket, clock.now());
      socket.on('data', refuseUnasked).on('error', () => {});
      this.#ahead.add(socket.unref());
      // A connection that closes before it gets a request failed to open, or the service keeps none that is
      // idle.
      socket.once('close', () => this.#ahead.delete(socket) && failed());
    });
  }

  /** Calls `done` when the handshake has begun. If the HTTP proxy fails, `done` gets its error. */
  #connect(options: CreateConnection[0], done: Connected): undefined {
    const secure = (socket?: Socket): TLSSocket => {
      const created = super.createConnection({ ...options, socket } as typeof options) as TLSSocket;
      done(null, created); // not in a promise: an error may come before a promise resolves
      return created;
    };
    this.#through(String(options.host), Number(options.port), secure).catch(done);
  }
}

/** Closes a connection on which the service sends something before it got a request. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
