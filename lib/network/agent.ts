/** The connections of the data path: how they are opened, and that some are ready before a request comes. */
import { once } from 'node:events';
import { Agent, type AgentOptions } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../clock.ts';
import { watchCertificate } from './failures.ts';
import type { OutboundProxy } from './outbound-proxy.ts';

/** The one server that an agent keeps connections ready to. */
export interface ReadyFor {
  readonly host: string;
  readonly port: number;
  /** How many idle connections to keep; 0: none is opened ahead. */
  readonly count: number;
  /** ms in which such a connection must be open, its certificate accepted. */
  readonly connectTimeout: number;
}

/**
 * A connection that has idled for this many times its term was not replaced: the machine slept, and the other
 * end is gone. Such a connection carries no request.
 */
const OUTLIVED = 2;
/** Handshakes at the same time; more would hold up the first request after a start. */
const AT_ONCE = 2;

type ConnectOptions = Parameters<Agent['createConnection']>[0];
type Connected = (error: Error | null, socket: TLSSocket) => void;

/**
 * Opens connections, through the HTTP proxy if there is one. They speak HTTP/1.1, and the certificates that
 * servers show are remembered.
 *
 * While `keep` asks for it, `count` idle connections are kept: those that the agent kept after a request, and
 * those opened ahead. Each is replaced after `warmRenew`, before the service closes it. Failures are retried
 * ever more slowly, in silence, because the next request reports what is wrong. Nothing but requests is sent.
 */
export class ServiceAgent extends Agent {
  readonly #tunnelTo: OutboundProxy['tunnelTo'];
  readonly #clock: Clock;
  readonly #service: ReadyFor | undefined;
  /** Connections opened ahead that had no request yet; the newest is the last. */
  readonly #ahead = new Set<TLSSocket>();
  #opening = 0;
  /** Since when a connection idles, in ms since 1970: that clock goes on while the machine sleeps. */
  readonly #idleSince = new WeakMap<Duplex, number>();
  #lookedAt = 0;
  #cancelLook: (() => void) | undefined;
  /** No connection is opened ahead for `#pause` ms after a failure. */
  #failedAt = 0;
  #pause = 0;

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

  override createConnection(options: ConnectOptions, callback?: Connected): TLSSocket | undefined {
    const { host, port } = this.#service ?? {};
    const ready = options.host === host && Number(options.port) === port ? this.#take() : undefined;
    if (ready !== undefined) return ready;
    const tunnel = this.#tunnelTo(String(options.host ?? 'localhost'), Number(options.port ?? 443));
    if (tunnel === undefined) return this.#secure(options);
    tunnel.then(
      (through) => callback?.(null, this.#secure(options, through)),
      (error: Error) => callback?.(error, undefined as never),
    );
    return undefined;
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
    this.#cancelLook?.();
    this.#cancelLook = undefined;
    // Requests of this turn of the event loop come first.
    if (ready && this.#service?.count) this.#cancelLook = this.#clock.after(0, () => this.#look());
  }

  /**
   * Closes the outlived connections, which Node would hand out. To be called before each request; looks at
   * the connections only if the last look is a second old.
   */
  dropOutlived(): void {
    const { times } = this.#clock;
    const now = this.#clock.now();
    if (Math.abs(now - this.#lookedAt) < times.warmLook) return;
    this.#lookedAt = now;
    for (const socket of this.#idle())
      if (this.#idleFor(socket) >= OUTLIVED * times.warmRenew) this.#drop(socket);
  }

  /** Opens missing connections; closes those that have idled for their term, once there are enough others. */
  #look(): void {
    const clock = this.#clock;
    const service = this.#service;
    if (this.#cancelLook === undefined || service === undefined) return;
    this.#cancelLook();
    this.#cancelLook = clock.after(clock.times.warmLook, () => this.#look());
    this.dropOutlived();
    const idle = this.#idle();
    const overdue = idle.filter((socket) => this.#idleFor(socket) >= clock.times.warmRenew);
    const missing = service.count - (idle.length - overdue.length);
    if (missing <= 0) for (const socket of overdue) this.#drop(socket);
    if (clock.monotonic() - this.#failedAt < this.#pause) return;
    while (this.#opening < Math.min(missing, AT_ONCE)) void this.#open(service);
  }

  /** The newest connection that was opened ahead and can be relied on. */
  #take(): TLSSocket | undefined {
    const { warmRenew } = this.#clock.times;
    const usable = (socket: TLSSocket): boolean =>
      socket.authorized && socket.writable && this.#idleFor(socket) < OUTLIVED * warmRenew;
    const socket = [...this.#ahead].findLast(usable);
    if (socket === undefined) return undefined;
    this.#ahead.delete(socket);
    this.#pause = 0;
    return socket.off('data', refuseUnasked).ref();
  }

  async #open({ host, port, connectTimeout }: ReadyFor): Promise<void> {
    const clock = this.#clock;
    this.#opening++;
    const late = new AbortController();
    const cancel = clock.after(connectTimeout, () => late.abort());
    let socket: TLSSocket | undefined;
    try {
      const through = await this.#tunnelTo(host, port);
      if (this.#cancelLook === undefined) through?.destroy(); // `keep` ended while the proxy opened it
      const more = { keepAlive: true, keepAliveInitialDelay: clock.times.keepAliveProbe };
      const options = { ...this.options, ...more, host, port, servername: isIP(host) ? '' : host };
      socket = this.#secure(options, through).on('error', () => {});
      this.#ahead.add(socket.once('close', () => this.#lost(socket as TLSSocket)));
      await once(socket, 'secureConnect', { signal: late.signal });
      this.#idleSince.set(socket, clock.now());
      socket.on('data', refuseUnasked).resume().unref();
    } catch {
      if (socket !== undefined) this.#ahead.delete(socket.destroy());
      this.#failed();
    }
    cancel();
    this.#opening--;
    this.#look();
  }

  /** Called when a connection opened ahead has closed. Unless a request has it, it is lost. */
  #lost(socket: TLSSocket): void {
    if (!this.#ahead.delete(socket)) return;
    if (this.#idleFor(socket) < this.#clock.times.warmYoung) this.#failed();
    else this.#pause = 0;
  }

  #failed(): void {
    const { warmFirstBackoff, warmLongestBackoff } = this.#clock.times;
    this.#pause = Math.min(Math.max(warmFirstBackoff, 2 * this.#pause), warmLongestBackoff);
    this.#failedAt = this.#clock.monotonic();
  }

  /** The idle connections of this agent, whether they had a request or not. */
  #idle(): TLSSocket[] {
    const kept = Object.values(this.freeSockets).flatMap((sockets = []) => sockets as TLSSocket[]);
    return [...kept, ...[...this.#ahead].filter(({ authorized }) => authorized)];
  }

  /** ms. If the wall clock was set back, nobody knows: what it was set back by counts. */
  #idleFor(socket: TLSSocket): number {
    const now = this.#clock.now();
    return Math.abs(now - (this.#idleSince.get(socket) ?? now));
  }

  #drop(socket: TLSSocket): void {
    socket.destroy();
    // Otherwise Node may hand it out until it hears of its end (docs/hazards.md 32).
    socket.emit('agentRemove');
  }

  #secure(options: ConnectOptions, through?: Socket): TLSSocket {
    const whole = { ...options, ALPNProtocols: ['http/1.1'], socket: through };
    const created = super.createConnection(whole) as TLSSocket;
    watchCertificate(created, String(options.host ?? 'localhost'));
    return created;
  }
}

/** Called when the service speaks before it was asked: this is a refusal, and the end of the connection. */
function refuseUnasked(this: TLSSocket): void {
  this.destroy();
}
