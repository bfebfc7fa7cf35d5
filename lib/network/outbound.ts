import { type AgentOptions, Agent as HttpsAgent } from 'node:https';
import { isIP, type Socket } from 'node:net';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent, type Dispatcher } from 'undici';
import { proxyFromEnvironment } from './proxy-environment.ts';
import { watchCertificate } from './tls-failure.ts';
import { createTlsSessions, type TlsSessions } from './tls-sessions.ts';
import { type Environment, loadTrustStore } from './trust-store.ts';
import { openTunnel } from './tunnel.ts';
import { createWarmConnections, type WarmConnections, type WarmOptions } from './warm-connections.ts';

export type Outbound = ReturnType<typeof createOutbound>;

/** A raw connection through the proxy, or undefined where the rule says direct. */
type Tunneller = (host: string, port: number, signal?: AbortSignal) => Promise<Socket> | undefined;

/** The one server that an agent opens connections to ahead of its requests. */
export interface WarmEndpoint extends WarmOptions {
  readonly host: string;
  readonly port: number;
}

/** An agent that opens connections ahead; `keep` and `announce` tell it when. */
export interface WarmAgent extends Pick<WarmConnections, 'keep' | 'announce'> {
  readonly agent: HttpsAgent;
  /** The HTTP/2 session of that server, where it speaks it and one is open. */
  readonly session: WarmConnections['session'];
}

/**
 * How this process reaches the outside: reads SSL_CERT_FILE, https_proxy and no_proxy (either case) from `env`, once for all
 * paths. The trust store becomes one secure context that all connections share: parsing a system's authorities anew for each
 * would cost more than the handshake. `connectTimeout` is ms to a usable connection on the control path, and to a response of
 * the HTTP proxy. Throws config_invalid.
 */
export function createOutbound(env: Environment, connectTimeout: number) {
  const secureContext = createSecureContext({ ca: [...loadTrustStore(env)] });
  const proxyFor = proxyFromEnvironment(env);
  const tunnelTo: Tunneller = (host, port, signal) => {
    const proxy = proxyFor(host, port);
    return proxy && openTunnel({ proxy, host, port, secureContext, timeout: connectTimeout, signal });
  };
  const connect = buildConnector({ secureContext, allowH2: false, timeout: connectTimeout });
  const reached = new Set<string>();
  const warmed: (WarmConnections & { readonly endpoint: string })[] = [];
  const onReached = (endpoint: string): void => {
    reached.add(endpoint);
    for (const connections of warmed) if (connections.endpoint === endpoint) connections.prepare();
  };
  const dispatcher = new ControlAgent({
    connect: throughProxy(connect, tunnelTo, onReached),
    allowH2: false,
  });
  const sessions = createTlsSessions();
  const agents: HttpsAgent[] = [];

  /** An agent for the data path, and how it connects; what both need for trust and proxy is added to `options`. */
  function connectingAgent(options: AgentOptions): { agent: HttpsAgent; connecting: Connecting } {
    const agent = new HttpsAgent({ ...options, secureContext, maxCachedSessions: 0 });
    const connecting = connectingBy(agent, sessions, tunnelTo);
    agent.createConnection = connecting;
    agents.push(agent);
    return { agent, connecting };
  }

  return {
    /** The control path: manifest, attestation, secret exchange, collateral. Never follows redirects. */
    dispatcher: dispatcher as Dispatcher,
    /** An agent for the data path; what it needs for trust and proxy is added to `options`. */
    agent: (options: AgentOptions = {}): HttpsAgent => connectingAgent(options).agent,
    /**
     * An agent whose connections to `host:port` are opened ahead: one as soon as the control path has reached that server, all
     * that `limit` and use allow while `keep` says that the server is verified. Nothing but requests is sent over them.
     */
    warmAgent({ host, port, ...rest }: WarmEndpoint, options: AgentOptions): WarmAgent {
      const { agent, connecting } = connectingAgent(options);
      if (rest.limit === 0) return { agent, session: () => undefined, keep() {}, announce() {} };
      const target = { host, port, servername: isIP(host) ? '' : host };
      const keptAlive = { keepAlive: true, keepAliveInitialDelay: agent.options.keepAliveMsecs ?? 1_000 };
      const whole = { ...agent.options, ...keptAlive, ...target };
      const open = (signal: AbortSignal, offerHttp2: boolean): Promise<TLSSocket> => {
        const ended = AbortSignal.any([signal, AbortSignal.timeout(connectTimeout)]);
        const offered = { ...whole, ALPNProtocols: offerHttp2 ? ['h2', 'http/1.1'] : ['http/1.1'] };
        return secured((callback) => connecting(offered, callback, ended), ended);
      };
      const connections = createWarmConnections({ ...rest, connectTimeout, open, agent });
      handOut(agent, connections, target);
      const endpoint = `${host}:${port}`;
      warmed.push({ ...connections, endpoint });
      if (reached.has(endpoint)) connections.prepare();
      const { session, keep, announce } = connections;
      return { agent, session, keep, announce };
    },
    /** Ends all connections, of the agents too; pending requests fail. */
    async close(): Promise<void> {
      for (const connections of warmed) connections.close();
      for (const created of agents) created.destroy();
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
  tunnelTo: Tunneller,
  onReached: (endpoint: string) => void,
): buildConnector.connector {
  const watched = (options: buildConnector.Options, given: buildConnector.Callback): void => {
    const callback: buildConnector.Callback = (...outcome) => {
      if (outcome[0] === null && options.protocol === 'https:')
        onReached(`${options.hostname}:${options.port || 443}`);
      given(...outcome);
    };
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

type Connected = (error: Error | null, socket: TLSSocket) => void;

/** As https.Agent's createConnection; `signal` gives up a connection that the proxy has not opened yet. */
type Connecting = (
  options: Parameters<HttpsAgent['createConnection']>[0],
  callback?: Connected,
  signal?: AbortSignal,
) => TLSSocket | undefined;

/** Opens the connections of `agent` through the proxy where there is one; they remember certificates and resume sessions. */
function connectingBy(agent: HttpsAgent, sessions: TlsSessions, tunnelTo: Tunneller): Connecting {
  const open = agent.createConnection.bind(agent);
  return (options, callback, signal) => {
    const host = String(options.host ?? 'localhost');
    const port = Number(options.port ?? 443);
    const server = `${host}:${port}/${options.servername ?? ''}`;
    const connect = (through: { socket?: Socket }): TLSSocket => {
      const known = sessions.find(server);
      const created = open({ ...options, ...through, ...(known && { session: known.session }) }) as TLSSocket;
      sessions.learn(server, created, known);
      watchCertificate(created, host);
      return created;
    };
    const tunnel = tunnelTo(host, port, signal);
    if (tunnel === undefined) return connect({});
    tunnel.then(
      (socket) => callback?.(null, connect({ socket })),
      (error: Error) => callback?.(error, undefined as never),
    );
    return undefined;
  };
}

/** Makes an agent take connections that are ready, where its request is for their server, and tell what it does. */
function handOut(
  agent: HttpsAgent,
  connections: WarmConnections,
  target: { readonly host: string; readonly port: number; readonly servername: string },
): void {
  const { createConnection } = agent;
  const reuseSocket = agent.reuseSocket.bind(agent);
  const keepSocketAlive = agent.keepSocketAlive.bind(agent) as (socket: object) => boolean;
  agent.createConnection = (options, callback) => {
    connections.began();
    const { host, port, servername } = target;
    const fits = options.host === host && Number(options.port) === port && options.servername === servername;
    return (fits ? connections.take() : undefined) ?? createConnection(options, callback);
  };
  agent.reuseSocket = (socket, request) => {
    connections.began();
    reuseSocket(socket, request);
  };
  agent.keepSocketAlive = (socket) => {
    connections.idles(socket);
    return keepSocketAlive(socket);
  };
}

/** The connection that `begin` opens, once its certificate was accepted. Rejects where it fails or `ended` comes first. */
function secured(
  begin: (callback: Connected) => TLSSocket | undefined,
  ended: AbortSignal,
): Promise<TLSSocket> {
  const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
  const begun = (socket: TLSSocket): void => {
    const giveUp = (): void => void socket.destroy();
    ended.addEventListener('abort', giveUp);
    if (ended.aborted) giveUp();
    socket.on('error', reject);
    socket.once('close', () => reject(new Error('closed before it was secure')));
    socket.once('secureConnect', () => {
      ended.removeEventListener('abort', giveUp);
      resolve(socket);
    });
  };
  const socket = begin((error, opened) => (error === null ? begun(opened) : reject(error)));
  if (socket !== undefined) begun(socket);
  return promise;
}
