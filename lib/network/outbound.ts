/**
 * How this process reaches the outside: the connections of the control path and of the data path, with their
 * trust store and HTTP proxy.
 */
import type { AgentOptions, Agent as HttpsAgent } from 'node:https';
import type { Socket } from 'node:net';
import { addAbortSignal } from 'node:stream';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent, type Dispatcher } from 'undici';
import type { Clock } from '../clock.ts';
import { proxyFromEnvironment } from './proxy-environment.ts';
import { watchCertificate } from './tls-failure.ts';
import { type Environment, loadTrustStore } from './trust-store.ts';
import { openTunnel } from './tunnel.ts';
import { OutboundAgent, type WarmEndpoint, WarmedAgent, type Way } from './upstream-agent.ts';

export type Outbound = ReturnType<typeof createOutbound>;

interface OutboundOptions {
  /** ms to a usable connection on the control path, and to a response of the HTTP proxy. */
  readonly connectTimeout: number;
  readonly clock: Clock;
  /** The certificates to trust, in PEM; default: those that the environment names. */
  readonly authorities?: readonly string[];
}

/**
 * Creates the connections to the outside. Reads https_proxy and no_proxy (either case) from `env`, once for
 * all connections. The authorities become one secure context that all connections share, because parsing a
 * system's authorities anew for each would cost more than the handshake. Throws config_invalid.
 */
export function createOutbound(
  env: Environment,
  { connectTimeout, clock, authorities = loadTrustStore(env) }: OutboundOptions,
) {
  const secureContext = createSecureContext({ ca: [...authorities] });
  // No connection resumes a TLS session: it would show no certificate, whose host name Node could check.
  const trusting = { secureContext, maxCachedSessions: 0 };
  const proxyFor = proxyFromEnvironment(env);
  // Ends what is being opened, which undici and Node's agents leave alone. Connections that are opened ahead
  // have a signal of their own, which their agent aborts.
  const closed = new AbortController();
  const tunnelTo: Way['tunnelTo'] = (host, port, signal = closed.signal) => {
    const proxy = proxyFor(host, port);
    return proxy && openTunnel({ proxy, host, port, secureContext, timeout: connectTimeout, clock, signal });
  };
  const connect = buildConnector({ ...trusting, allowH2: false, timeout: connectTimeout });
  const reached = new Set<string>();
  const agents: OutboundAgent[] = [];
  const onReached = (endpoint: string): void => {
    reached.add(endpoint);
    for (const agent of agents) if (agent instanceof WarmedAgent) agent.reached(endpoint);
  };
  const dispatcher = new ControlAgent({
    connect: throughProxy(connect, tunnelTo, { closed: closed.signal, onReached }),
    allowH2: false,
  });
  const way: Way = { tunnelTo, connectTimeout, clock };

  return {
    /** The control path: manifest, attestation, secret exchange, collateral. Never follows redirects. */
    dispatcher: dispatcher as Dispatcher,
    /** An agent for the data path. Trust store and proxy are added to `options`. */
    agent(options: AgentOptions = {}): HttpsAgent {
      const agent = new OutboundAgent({ ...options, ...trusting }, way);
      agents.push(agent);
      return agent;
    },
    /**
     * An agent that opens connections to `host:port` ahead of requests: one as soon as the control path has
     * reached that server, and as many as `limit` and use allow while `connections.keep` says that the server
     * is verified. Nothing but requests is sent over them.
     */
    warmAgent(endpoint: WarmEndpoint, options: AgentOptions): WarmedAgent {
      const agent = new WarmedAgent(endpoint, { ...options, ...trusting }, way);
      agents.push(agent);
      for (const server of reached) agent.reached(server);
      return agent;
    },
    /**
     * Ends all connections, of the agents too, and those that are being opened; pending requests fail. Any
     * connection that stayed would keep the process alive.
     */
    async close(): Promise<void> {
      for (const agent of agents) agent.destroy();
      await dispatcher.destroy();
      closed.abort();
    },
  };
}

/**
 * A connector for undici that goes through the proxy if there is one, and remembers the certificates that
 * servers show. `closed` ends its connections. `onReached` gets `HOST:PORT` of each server whose certificate
 * was accepted.
 */
function throughProxy(
  connect: buildConnector.connector,
  tunnelTo: Way['tunnelTo'],
  { closed, onReached }: { readonly closed: AbortSignal; readonly onReached: (endpoint: string) => void },
): buildConnector.connector {
  return (options, callback) => {
    const { protocol, hostname, port } = options;
    if (protocol !== 'https:') return connect(options, callback);
    const secure = (httpSocket?: Socket): void => {
      // The declared type hides it, but the connector hands out its socket.
      const socket = connect({ ...options, ...(httpSocket && { httpSocket }) }, (...outcome) => {
        if (outcome[0] === null) onReached(`${hostname}:${port || 443}`);
        callback(...outcome);
      }) as unknown as TLSSocket;
      watchCertificate(socket, hostname);
      addAbortSignal(closed, socket);
    };
    const tunnel = tunnelTo(hostname, Number(port || 443));
    if (tunnel === undefined) return secure();
    tunnel.then(secure, (error: Error) => callback(error, null));
  };
}
