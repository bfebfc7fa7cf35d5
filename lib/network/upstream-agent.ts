/**
 * The agents of the data path: how they connect, and how one of them hands out connections that were opened
 * ahead.
 */
import { once } from 'node:events';
import type { ClientRequest } from 'node:http';
import { Agent, type AgentOptions } from 'node:https';
import { isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../clock.ts';
import { watchCertificate } from './tls-failure.ts';
import { WarmConnections } from './warm-connections.ts';

/** What all agents of a process share. */
export interface Way {
  /** A raw connection through the proxy, or undefined where the rule says direct. */
  readonly tunnelTo: (host: string, port: number, signal?: AbortSignal) => Promise<Socket> | undefined;
  /** ms in which a connection that is opened ahead must be ready, its certificate accepted. */
  readonly connectTimeout: number;
  readonly clock: Clock;
}

/** The one server that an agent opens connections to ahead of its requests. */
export interface WarmEndpoint {
  readonly host: string;
  readonly port: number;
  /** At most so many connections are opened ahead; 0: none. */
  readonly limit: number;
}

type ConnectOptions = Parameters<Agent['createConnection']>[0];
type Connected = (error: Error | null, socket: TLSSocket) => void;

/**
 * Opens connections, through the proxy if there is one. They speak HTTP/1.1, and the certificates that
 * servers show are remembered.
 */
export class OutboundAgent extends Agent {
  readonly #way: Way;

  constructor(options: AgentOptions, way: Way) {
    super(options);
    this.#way = way;
  }

  override createConnection(options: ConnectOptions, callback?: Connected): TLSSocket | undefined {
    const tunnel = this.#tunnelFor(options);
    if (tunnel === undefined) return this.#secure(options);
    tunnel.then(
      (through) => callback?.(null, this.#secure(options, through)),
      (error: Error) => callback?.(error, undefined as never),
    );
    return undefined;
  }

  /**
   * Opens a connection outside of any request, and resolves once its certificate was accepted. Rejects if the
   * connection fails or `ended` comes first.
   */
  protected async open(options: ConnectOptions, ended: AbortSignal): Promise<TLSSocket> {
    const through = await this.#tunnelFor(options, ended);
    const socket = this.#secure(options, through).on('error', () => {});
    try {
      await once(socket, 'secureConnect', { signal: ended });
      return socket;
    } catch (failure) {
      socket.destroy();
      throw failure;
    }
  }

  #tunnelFor({ host, port }: ConnectOptions, signal?: AbortSignal): Promise<Socket> | undefined {
    return this.#way.tunnelTo(String(host ?? 'localhost'), Number(port ?? 443), signal);
  }

  #secure(options: ConnectOptions, through?: Socket): TLSSocket {
    const whole = { ...options, ALPNProtocols: ['http/1.1'], socket: through };
    const created = super.createConnection(whole) as TLSSocket;
    watchCertificate(created, String(options.host ?? 'localhost'));
    return created;
  }
}

/**
 * An agent that hands out connections which were opened ahead to its one server, and tells them of its
 * requests.
 */
export class WarmedAgent extends OutboundAgent {
  readonly connections: WarmConnections;
  readonly #target: { readonly host: string; readonly port: number; readonly servername: string };

  constructor({ host, port, limit }: WarmEndpoint, options: AgentOptions, way: Way) {
    super(options, way);
    this.#target = { host, port, servername: isIP(host) ? '' : host };
    const { clock, connectTimeout } = way;
    const keepAliveInitialDelay = clock.times.keepAliveProbe;
    const whole = { ...this.options, ...this.#target, keepAlive: true, keepAliveInitialDelay };
    const open = async (closed: AbortSignal): Promise<TLSSocket> => {
      // Not AbortSignal.timeout: together with AbortSignal.any, its signal stays in memory until its time is
      // over.
      const late = new AbortController();
      const cancel = clock.after(connectTimeout, () => late.abort());
      return this.open(whole, AbortSignal.any([closed, late.signal])).finally(cancel);
    };
    this.connections = new WarmConnections({ limit, agent: this, open, clock });
  }

  override createConnection(options: ConnectOptions, callback?: Connected): TLSSocket | undefined {
    this.connections.began();
    const { host, port, servername } = this.#target;
    const fits = options.host === host && Number(options.port) === port && options.servername === servername;
    return (fits ? this.connections.take() : undefined) ?? super.createConnection(options, callback);
  }

  /**
   * Called when the control path has reached a server, `HOST:PORT`. If that is the server of this agent, it
   * is about to be verified, so a connection is prepared.
   */
  reached(server: string): void {
    if (server === `${this.#target.host}:${this.#target.port}`) this.connections.prepare();
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.connections.began();
    super.reuseSocket(socket, request);
  }

  /** Returns whether the connection is kept, which the declared type of Node's method leaves out. */
  override keepSocketAlive(socket: Duplex): boolean {
    this.connections.idles(socket);
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override destroy(): void {
    this.connections.close();
    super.destroy();
  }
}
