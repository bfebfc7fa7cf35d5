import { type AgentOptions, Agent as HttpsAgent } from 'node:https';
import type { Socket } from 'node:net';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent, type Dispatcher } from 'undici';
import { proxyFromEnvironment } from './proxy-environment.ts';
import { watchCertificate } from './tls-failure.ts';
import { type Environment, loadTrustStore } from './trust-store.ts';
import { openTunnel } from './tunnel.ts';

export type Outbound = ReturnType<typeof createOutbound>;

/** A raw connection through the proxy, or undefined where the rule says direct. */
type Tunneller = (host: string, port: number) => Promise<Socket> | undefined;

/**
 * How this process reaches the outside: reads SSL_CERT_FILE, https_proxy and no_proxy (either case) from `env`, once for all
 * paths. The trust store becomes one secure context that all connections share: parsing a system's authorities anew for each
 * would cost more than the handshake. `connectTimeout` is ms to a usable connection on the control path, and to a response of
 * the HTTP proxy. Throws config_invalid.
 */
export function createOutbound(env: Environment, connectTimeout: number) {
  const secureContext = createSecureContext({ ca: [...loadTrustStore(env)] });
  const proxyFor = proxyFromEnvironment(env);
  const tunnelTo: Tunneller = (host, port) => {
    const proxy = proxyFor(host, port);
    return proxy && openTunnel({ proxy, host, port, secureContext, timeout: connectTimeout });
  };
  const connect = buildConnector({ secureContext, allowH2: false, timeout: connectTimeout });
  const dispatcher = new ControlAgent({ connect: throughProxy(connect, tunnelTo), allowH2: false });
  const agents: HttpsAgent[] = [];
  return {
    /** The control path: manifest, attestation, secret exchange, collateral. Never follows redirects. */
    dispatcher: dispatcher as Dispatcher,
    /** An agent for the data path; what it needs for trust and proxy is added to `options`. */
    agent(options: AgentOptions = {}): HttpsAgent {
      const agent = tunnellingAgent({ ...options, secureContext }, tunnelTo);
      agents.push(agent);
      return agent;
    },
    /** Ends all connections, of the agents too; pending requests fail. */
    async close(): Promise<void> {
      for (const agent of agents) agent.destroy();
      await dispatcher.destroy();
    },
  };
}

/** A connector of undici that goes through the proxy where there is one, and remembers certificates it is shown. */
function throughProxy(connect: buildConnector.connector, tunnelTo: Tunneller): buildConnector.connector {
  const watched = (options: buildConnector.Options, callback: buildConnector.Callback): void => {
    // The declared type hides it, but the connector hands out its socket, and TLS it is for https.
    const socket = connect(options, callback) as unknown as TLSSocket;
    if (options.protocol === 'https:') watchCertificate(socket, options.hostname);
  };
  return (options, callback) => {
    const { protocol, hostname, port } = options;
    const tunnel = protocol === 'https:' ? tunnelTo(hostname, Number(port || 443)) : undefined;
    if (tunnel === undefined) return watched(options, callback);
    tunnel.then(
      (httpSocket) => watched({ ...options, httpSocket }, callback),
      (error: Error) => callback(error, null),
    );
  };
}

/** An https.Agent whose connections go through the proxy where there is one, and remember certificates they are shown. */
function tunnellingAgent(agentOptions: AgentOptions, tunnelTo: Tunneller): HttpsAgent {
  const agent = new HttpsAgent(agentOptions);
  const open = agent.createConnection.bind(agent);
  agent.createConnection = (options, callback) => {
    const host = String(options.host ?? 'localhost');
    const connect = (through: { socket?: Socket }): TLSSocket => {
      const created = open({ ...options, ...through }) as TLSSocket;
      watchCertificate(created, host);
      return created;
    };
    const tunnel = tunnelTo(host, Number(options.port ?? 443));
    if (tunnel === undefined) return connect({});
    tunnel.then(
      (socket) => callback?.(null, connect({ socket })),
      (error: Error) => callback?.(error, undefined as never),
    );
    return undefined;
  };
  return agent;
}
