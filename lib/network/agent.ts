/** The connections of the data path, some of which are ready before a request comes. */
import { Agent, type AgentOptions } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { type Clock, every } from '../clock.ts';
import type { Through } from './outbound-proxy.ts';

/** The only place that an agent connects to, and how many idle connections are kept ready to it. */
export interface Service {
  readonly host: string;
  readonly port: number;
  readonly count: number;
}

type CreateConnection = Parameters<Agent['createConnection']>;
type Connected = (error: Error | null, socket?: TLSSocket) => void;

/**
 * Opens connections. While `keep` asks for it, there are `count` idle ones: those kept after a request, and
 * those opened ahead. None carries a request after it has idled for `warmRenew`, because its other end may be
 * gone. A failure is followed by a pause, in silence, because the next request reports what is wrong.
 */
export class ServiceAgent extends Agent {
  readonly #service: Service;
  readonly #through: Through;
  readonly #clock: Clock;
  /** Opened ahead, also in their handshake, without a request yet. */
  readonly #ahead = new Set<TLSSocket>();
  /** ms since 1970: that clock goes on while the machine sleeps. */
  readonly #idleSince = new WeakMap<Duplex, number>();
  #lookedAt = 0; // ms since 1970
  #stopLooking: (() => void) | undefined;
  /** By the monotonic clock; Infinity while one is opened. */
  #pausedUntil = 0;

  constructor(options: AgentOptions, service: Service, through: Through, clock: Clock) {
    const { host, port } = service;
    // Over those of a request: no connection goes anywhere else, whatever a request says.
    super({ ...options, host, port, servername: isIP(host) ? '' : host });
    this.#service = service;
    this.#through = through;
    this.#clock = clock;
  }

  /** By which Node keeps connections: one name for one place, not twenty options of each request. */
  override getName(): string {
    return 'service';
  }

  override createConnection(options: CreateConnection[0], callback?: CreateConnection[1]): undefined {
    const ready = [...this.#ahead].findLast((each) => each.authorized && each.writable);
    if (ready === undefined) return this.#connect(options, callback as Connected);
    this.#ahead.delete(ready.off('data', refuseUnasked));
    callback?.(null, ready.ref());
  }

  /** Returns whether the connection is kept, which Node's type leaves out. */
  override keepSocketAlive(socket: Duplex): boolean {
    this.#idleSince.set(socket, this.#clock.now());
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override destroy(): void {
    this.keep(false);
    for (const socket of this.#ahead) socket.destroy();
    super.destroy();
  }

  /** `ready`: the service is verified. */
  keep(ready: boolean): void {
    const looks = ready && this.#service.count > 0;
    if (looks === (this.#stopLooking !== undefined)) return;
    this.#stopLooking?.();
    const { warmLook } = this.#clock.times;
    this.#stopLooking = looks ? every(this.#clock, warmLook, () => this.#look()) : undefined;
    if (looks) this.#look();
  }

  /** Closes, once in a second, what has idled for too long. To be called before each request. */
  dropOutlived(): void {
    const now = this.#clock.now();
    if (Math.abs(now - this.#lookedAt) < this.#clock.times.warmLook) return;
    this.#lookedAt = now;
    const kept = Object.values(this.freeSockets).flatMap((sockets = []) => sockets as TLSSocket[]);
    for (const socket of [...kept, ...this.#ahead]) {
      // If the clock was set back, what it was set back by counts.
      const idle = Math.abs(now - (this.#idleSince.get(socket) as number));
      if (idle < this.#clock.times.warmRenew) continue;
      this.#ahead.delete(socket.destroy());
      socket.emit('agentRemove'); // docs/architecture.md H32
    }
  }

  /** Opens a connection if one is missing; more at a time would hold up a request. */
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
      // Unless a request has it, it could not be opened, or the service does not keep it.
      socket.once('close', () => this.#ahead.delete(socket) && failed());
    });
  }

  /** Calls `done` once the handshake has begun, or with the error of the HTTP proxy. */
  #connect(options: CreateConnection[0], done: Connected): undefined {
    const secure = (socket?: Socket): TLSSocket => {
      const created = super.createConnection({ ...options, socket } as typeof options) as TLSSocket;
      done(null, created); // at once: an error may come before a promise resolves
      return created;
    };
    this.#through(String(options.host), Number(options.port), secure).catch(done);
  }
}

/** The service speaks unasked. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
