/** The connections of the data path: how they are opened, and that some are ready before a request comes. */
import { Agent, type AgentOptions } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { type Clock, every } from '../clock.ts';
import { watchCertificate } from './failures.ts';
import type { Through } from './outbound-proxy.ts';

/** How an agent reaches its server, and how many idle connections it keeps ready to it. */
export interface Way {
  readonly through: Through;
  readonly clock: Clock;
  readonly service?: { readonly host: string; readonly port: number; readonly count: number } | undefined;
}

type CreateConnection = Parameters<Agent['createConnection']>;
type Connected = (error: Error | null, socket?: TLSSocket) => void;

/**
 * Opens connections, through the HTTP proxy if there is one. While `keep` asks for it, `count` idle ones are
 * kept: those that the agent kept after a request, and those opened ahead. None carries a request after it
 * has idled for `warmRenew`: the service may have closed it, and after a sleep of the machine the other end
 * is gone. A failure is followed by a pause, in silence, because the next request reports what is wrong.
 */
export class ServiceAgent extends Agent {
  readonly #way: Way;
  /** Connections opened ahead that had no request yet, also in their handshake. The newest is used first. */
  readonly #ahead = new Set<TLSSocket>();
  /** Since when a connection idles, in ms since 1970: that clock goes on while the machine sleeps. */
  readonly #idleSince = new WeakMap<Duplex, number>();
  #lookedAt = 0;
  #stopLooking: (() => void) | undefined;
  /** None is opened ahead before this moment of the monotonic clock; Infinity: while the proxy opens one. */
  #pausedUntil = 0;

  constructor(options: AgentOptions, way: Way) {
    super(options);
    this.#way = way;
  }

  override createConnection(options: CreateConnection[0], callback?: CreateConnection[1]): undefined {
    const { host, port } = this.#way.service ?? {};
    const isService = options.host === host && Number(options.port) === port;
    const ready = isService && [...this.#ahead].findLast((each) => each.authorized && each.writable);
    if (!ready) return this.#connect(options, callback as Connected);
    this.#ahead.delete(ready.off('data', refuseUnasked));
    callback?.(null, ready.ref());
  }

  /** Returns whether the connection is kept, which the declared type of Node's method leaves out. */
  override keepSocketAlive(socket: Duplex): boolean {
    this.#idleSince.set(socket, this.#way.clock.now());
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override destroy(): void {
    this.keep(false);
    for (const socket of this.#ahead) socket.destroy();
    super.destroy();
  }

  /** Begins or stops to keep idle connections ready: the service is verified, or no longer. */
  keep(ready: boolean): void {
    const { service, clock } = this.#way;
    const looks = ready && service !== undefined && service.count > 0;
    if (looks === (this.#stopLooking !== undefined)) return;
    this.#stopLooking?.();
    this.#stopLooking = looks ? every(clock, clock.times.warmLook, () => this.#look()) : undefined;
    if (looks) this.#look();
  }

  /**
   * Closes the connections that have idled for too long, which Node would hand out. To be called before each
   * request; looks at them once in a second.
   */
  dropOutlived(): void {
    const { clock } = this.#way;
    if (Math.abs(clock.now() - this.#lookedAt) >= clock.times.warmLook) this.#closeOutlived();
  }

  /** Closes the connections that have idled for too long. Returns how many idle ones are left. */
  #closeOutlived(): number {
    const { clock } = this.#way;
    const now = clock.now();
    this.#lookedAt = now;
    const kept = Object.values(this.freeSockets).flatMap((sockets = []) => sockets as TLSSocket[]);
    let left = 0;
    for (const socket of [...kept, ...this.#ahead]) {
      // If the clock was set back, nobody knows how long it has idled: what it was set back by counts.
      if (Math.abs(now - (this.#idleSince.get(socket) as number)) < clock.times.warmRenew) left++;
      else {
        this.#ahead.delete(socket.destroy());
        // Otherwise Node may hand it out until it hears of its end (docs/hazards.md 32).
        socket.emit('agentRemove');
      }
    }
    return left;
  }

  /** Opens a connection if one is missing: more at a time would hold up the first request after a start. */
  #look(): void {
    const left = this.#closeOutlived();
    const { service, clock } = this.#way;
    if (service === undefined || left >= service.count || clock.monotonic() < this.#pausedUntil) return;
    const { host, port } = service;
    const to = { host, port, servername: isIP(host) ? '' : host };
    const probe = { keepAlive: true, keepAliveInitialDelay: clock.times.keepAliveProbe };
    this.#pausedUntil = Number.POSITIVE_INFINITY;
    this.#connect({ ...this.options, ...probe, ...to }, (_error, socket) => {
      if (socket === undefined) return this.#failed();
      this.#pausedUntil = 0;
      if (this.#stopLooking === undefined) return void socket.destroy();
      this.#idleSince.set(socket, clock.now());
      socket.on('data', refuseUnasked).on('error', () => {});
      this.#ahead.add(socket.unref());
      // Unless a request has it, it could not be opened, or the service does not keep it.
      socket.once('close', () => this.#ahead.delete(socket) && this.#failed());
    });
  }

  #failed(): void {
    const { clock } = this.#way;
    this.#pausedUntil = clock.monotonic() + clock.times.warmPause;
  }

  /** Calls `done` once the handshake has begun, or with the error of the HTTP proxy. */
  #connect(options: CreateConnection[0], done: Connected): undefined {
    const host = String(options.host);
    const secure = (socket?: Socket): void => {
      const created = super.createConnection({ ...options, socket } as typeof options) as TLSSocket;
      watchCertificate(created, host);
      done(null, created);
    };
    this.#way.through(host, Number(options.port), secure, done);
  }
}

/** Called when the service speaks before it was asked: this is a refusal, and the end of the connection. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
