/**
 * Every TCP connection that this process opens while it is watched. Nothing beyond this machine is let
 * through.
 */
import { type NetConnectOpts, Socket } from 'node:net';

export interface ConnectionWatch {
  /** `host:port`, as they were asked for, each once. */
  targets(): string[];
  end(): void;
}

const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|::1)$/;

export function watchConnections(): ConnectionWatch {
  const seen = new Set<string>();
  const connect = Socket.prototype.connect as (this: Socket, ...args: unknown[]) => Socket;
  function watched(this: Socket, ...args: unknown[]): Socket {
    const { host, port } = targetOf(args);
    seen.add(`${host}:${port}`);
    if (LOOPBACK.test(host)) return connect.apply(this, args);
    const refused = Object.assign(new Error(`connect to ${host} in a test`), { code: 'ECONNREFUSED' });
    process.nextTick(() => this.destroy(refused));
    return this;
  }
  Socket.prototype.connect = watched as typeof Socket.prototype.connect;
  return {
    targets: () => [...seen].sort(),
    end() {
      Socket.prototype.connect = connect as typeof Socket.prototype.connect;
    },
  };
}

/**
 * Node calls it with (options), (port, host) or with these as one list, which it has put in order already.
 */
function targetOf([first, second]: readonly unknown[]): { readonly host: string; readonly port: unknown } {
  if (Array.isArray(first)) return targetOf(first);
  if (typeof first === 'number')
    return { host: typeof second === 'string' ? second : 'localhost', port: first };
  const { host = 'localhost', port } = first as Extract<NetConnectOpts, { port: number }>;
  return { host, port };
}
