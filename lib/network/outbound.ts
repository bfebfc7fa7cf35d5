import type { AgentOptions, Agent as HttpsAgent } from 'node:https';
import type { Socket } from 'node:net';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent, type Dispatcher } from 'undici';
import { OutboundAgent, type WarmEndpoint, WarmedAgent, type Way } from './outbound-agent.ts';
import { proxyFromEnvironment } from './proxy-environment.ts';
import { watchCertificate } from './tls-failure.ts';
import { createTlsSessions } from './tls-sessions.ts';
import { type Environment, loadTrustStore } from './trust-store.ts';
import { openTunnel } from './tunnel.ts';

export type Outbound = ReturnType<typeof createOutbound>;

/**
 * How this process reaches the outside: reads SSL_CERT_FILE, https_proxy and no_proxy (either case) from `env`, once for all
 * paths. The trust store becomes one secure context that all connections share: parsing a system's authorities anew for each
 * would cost more than the handshake. `connectTimeout` is ms to a usable connection on the control path, and to a response of
 * the HTTP proxy. Throws config_invalid.
 */
export function createOutbound(env: Environment, connectTimeout: number) {
  const secureContext = createSecureContext({ ca: [...loadTrustStore(env)] });
  const proxyFor = proxyFromEnvironment(env);
  const tunnelTo: Way['tunnelTo'] = (host, port, signal) => {
    const proxy = proxyFor(host, port);
    return proxy && openTunnel({ proxy, host, port, secureContext, timeout: connectTimeout, signal });
  };
  const connect = buildConnector({ secureContext, allowH2: false, timeout: connectTimeout });
  const reached = new Set<string>();
  const agents: OutboundAgent[] = [];
  const onReached = (endpoint: string): void => {
    reached.add(endpoint);
    for (const agent of agents) if (agent instanceof WarmedAgent) agent.reached(endpoint);
  };
  const dispatcher = new ControlAgent({
    connect: throughProxy(connect, tunnelTo, onReached),
    allowH2: false,
  });
  const way: Way = { tunnelTo, sessions: createTlsSessions(), connectTimeout };
  const trusting = { secureContext, maxCachedSessions: 0 };

  return {
    /** The control path: manifest, attestation, secret exchange, collateral. Never follows redirects. */
    dispatcher: dispatcher as Dispatcher,
    /** An agent for the data path; what it needs for trust and proxy is added to `options`. */
    agent(options: AgentOptions = {}): HttpsAgent {
      const agent = new OutboundAgent({ ...options, ...trusting }, way);
      agents.push(agent);
      return agent;
    },
    /**
     * An agent whose connections to `host:port` are opened ahead: one as soon as the control path has reached that server, all
     * that `limit` and use allow while `connections.keep` says that the server is verified. Nothing but requests is sent over them.
     */
    warmAgent(endpoint: WarmEndpoint, options: AgentOptions): WarmedAgent {
      const agent = new WarmedAgent(endpoint, { ...options, ...trusting }, way);
      agents.push(agent);
      for (const server of reached) agent.reached(server);
      return agent;
    },
    /** Ends all connections, of the agents too; pending requests fail. */
    async close(): Promise<void> {
      for (const agent of agents) agent.destroy();
      await dispatcher.destroy();
    },
  };
}

/**
 * A connector of undici that goes through the proxy where there is one, and remembers certificates it is shown. `onReached`
 * gets `HOST:PORT` of servers whose certificate was accepted.
 */
function throughProxy(
  connect: buildConnector.connector,
  tunnelTo: Way['tunnelTo'],
  onReached: (endpoint: string) => void,
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
    };
    const tunnel = tunnelTo(hostname, Number(port || 443));
    if (tunnel === undefined) return secure();
    tunnel.then(secure, (error: Error) => callback(error, null));
  };
}
