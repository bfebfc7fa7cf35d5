/** The connections of the data path: how they are opened, and that some are ready before a request comes. */
import { Agent, type AgentOptions } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { type Clock, every } from '../clock.ts';
import { watchCertificate } from './failures.ts';
import type { OutboundProxy } from './outbound-proxy.ts';

/** The one server that an agent keeps connections ready to. */
export interface ReadyFor {
  readonly host: string;
  readonly port: number;
  /** How many idle connections to keep; 0: none is opened ahead. */
  readonly count: number;
}

/** How many are opened at a time; more would hold up the first request after a start. */
const AT_ONCE = 2;

type ConnectOptions = Parameters<Agent['createConnection']>[0];
type Connected = (error: Error | null, socket: TLSSocket) => void;

/**
 * Opens connections, through the HTTP proxy if there is one. They speak HTTP/1.1, and the certificates that
 * servers show are remembered.
 *
 * While `keep` asks for it, `count` idle connections are kept: those that the agent kept after a request, and
 * those opened ahead. None carries a request after it has idled for `warmRenew`: the service may have closed
 * it, and after a sleep of the machine the other end is gone. A failure is followed by a pause, in
 * silence, because the next request reports what is wrong. Nothing but requests is sent.
 */
export class ServiceAgent extends Agent {
  readonly #tunnelTo: OutboundProxy['tunnelTo'];
  readonly #clock: Clock;
  readonly #service: ReadyFor | undefined;
  /** Connections opened ahead that had no request yet, also in their handshake; the newest is the last. */
  readonly #ahead = new Set<TLSSocket>();
  /** How many of them the HTTP proxy has not opened yet. */
  #opening = 0;
  /** Since when a connection idles, in ms since 1970: that clock goes on while the machine sleeps. */
  readonly #idleSince = new WeakMap<Duplex, number>();
  #lookedAt = 0;
  #stopLooking: (() => void) | undefined;
  /** None is opened before this moment of the monotonic clock. */
  #pausedUntil = 0;

  constructor(
    options: AgentOptions,
    way: { readonly tunnelTo: OutboundProxy['tunnelTo']; readonly clock: Clock },
    service?: ReadyFor,
  ) {
    super(options);
    this.#tunnelTo = way.tunnelTo;
    this.#clock = way.clock;
    this.#service = service;
  }

  override createConnection(options: ConnectOptions, callback?: Connected): undefined {
    const { host, port } = this.#service ?? {};
    const ready = options.host === host && Number(options.port) === port ? this.#take() : undefined;
    if (ready === undefined) this.#connect(options, callback as Connected);
    else callback?.(null, ready);
  }

  /** Returns whether the connection is kept, which the declared type of Node's method leaves out. */
  override keepSocketAlive(socket: Duplex): boolean {
    this.#idleSince.set(socket, this.#clock.now());
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override destroy(): void {
    this.keep(false);
    for (const socket of this.#ahead) socket.destroy();
    super.destroy();
  }

  /** Begins or stops to keep idle connections ready: the service is verified, or no longer. */
  keep(ready: boolean): void {
    const service = this.#service;
    if (!ready || !service?.count) {
      this.#stopLooking?.();
      this.#stopLooking = undefined;
    } else if (this.#stopLooking === undefined) {
      this.#stopLooking = every(this.#clock, this.#clock.times.warmLook, () => this.#look(service));
      this.#look(service);
    }
  }

  /**
   * Closes the connections that have idled for too long, which Node would hand out. To be called before each
   * request; looks at them once in a second.
   */
  dropOutlived(): void {
    const now = this.#clock.now();
    if (Math.abs(now - this.#lookedAt) < this.#clock.times.warmLook) return;
    this.#lookedAt = now;
    for (const socket of this.#idle('outlived')) {
      this.#ahead.delete(socket.destroy());
      // Otherwise Node may hand it out until it hears of its end (docs/hazards.md 32).
      socket.emit('agentRemove');
    }
  }

  /** Opens missing connections; closes those that have idled for too long once there are enough others. */
  #look(service: ReadyFor): void {
    const missing = service.count - this.#opening - this.#idle('fresh').length;
    if (missing <= 0) this.dropOutlived();
    if (this.#clock.monotonic() < this.#pausedUntil) return;
    for (let i = 0; i < Math.min(missing, AT_ONCE); i++) this.#open(service);
  }

  /** The newest connection that was opened ahead and can be relied on. */
  #take(): TLSSocket | undefined {
    const socket = [...this.#ahead].findLast((each) => each.authorized && each.writable);
    if (socket === undefined) return undefined;
    this.#ahead.delete(socket);
    return socket.off('data', refuseUnasked).ref();
  }

  #open({ host, port }: ReadyFor): void {
    this.#opening++;
    const probe = { keepAlive: true, keepAliveInitialDelay: this.#clock.times.keepAliveProbe };
    const servername = isIP(host) ? '' : host;
    this.#connect({ ...this.options, ...probe, host, port, servername }, (error, socket) => {
      this.#opening--;
      if (error) return this.#failed();
      if (this.#stopLooking === undefined) return void socket.destroy();
      this.#idleSince.set(socket, this.#clock.now());
      socket.on('data', refuseUnasked).on('error', () => {});
      this.#ahead.add(socket.unref());
      // Unless a request has it, it could not be opened, or the service does not keep it.
      socket.once('close', () => this.#ahead.delete(socket) && this.#failed());
    });
  }

  #failed(): void {
    this.#pausedUntil = this.#clock.monotonic() + this.#clock.times.warmPause;
  }

  /**
   * The connections without a request, whether they had one or not. If the wall clock was set back, nobody
   * knows how long they have idled: what it was set back by counts.
   */
  #idle(which: 'fresh' | 'outlived'): TLSSocket[] {
    const now = this.#clock.now();
    const kept = Object.values(this.freeSockets).flatMap((sockets = []) => sockets as TLSSocket[]);
    return [...kept, ...this.#ahead].filter((socket) => {
      const idled = Math.abs(now - (this.#idleSince.get(socket) ?? now));
      return idled < this.#clock.times.warmRenew === (which === 'fresh');
    });
  }

  /** Calls `done` once the handshake has begun, or with the error of the HTTP proxy. */
  #connect(options: ConnectOptions, done: Connected): void {
    const host = String(options.host ?? 'localhost');
    const secure = (socket?: Socket): void => {
      const whole = { ...options, ALPNProtocols: ['http/1.1'], socket };
      const created = super.createConnection(whole) as TLSSocket;
      watchCertificate(created, host);
      done(null, created);
    };
    const tunnel = this.#tunnelTo(host, Number(options.port ?? 443));
    if (tunnel === undefined) secure();
    else tunnel.then(secure, (error: Error) => done(error, undefined as never));
  }
}

/** Called when the service speaks before it was asked: this is a refusal, and the end of the connection. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
