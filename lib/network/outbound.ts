/** How this process reaches the outside: the connections of the control path and of the data path. */
import type { AgentOptions } from 'node:https';
import type { Socket } from 'node:net';
import { addAbortSignal } from 'node:stream';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent } from 'undici';
import type { Clock } from '../clock.ts';
import { ServiceAgent, type Way } from './agent.ts';
import { createControlCall } from './control-call.ts';
import { watchCertificate } from './failures.ts';
import { outboundProxy } from './outbound-proxy.ts';
import { type Environment, loadTrustStore } from './trust-store.ts';

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
  const trusting = { secureContext, maxCachedSessions: 0, ALPNProtocols: ['http/1.1'] };
  const closed = new AbortController(); // ends what is being opened, which undici leaves alone
  const through = outboundProxy(env, { secureContext, connectTimeout, clock, closed: closed.signal });
  const connect = buildConnector({ ...trusting, allowH2: false, timeout: connectTimeout });
  const agents: ServiceAgent[] = [];

  const connectThrough: buildConnector.connector = (options, callback) => {
    const { protocol, hostname, port } = options;
    if (protocol !== 'https:') return connect(options, callback);
    const secure = (httpSocket?: Socket): void => {
      // The declared type hides it, but the connector hands out its socket.
      const socket: unknown = connect({ ...options, ...(httpSocket && { httpSocket }) }, callback);
      watchCertificate(addAbortSignal(closed.signal, socket as TLSSocket), hostname);
    };
    through(hostname, Number(port || 443), secure, (error) => callback(error, null));
  };
  // The limit of each call replaces undici's timers, which start anew with every byte.
  const untimed = { headersTimeout: 0, bodyTimeout: 0 };
  const dispatcher = new ControlAgent({ connect: connectThrough, allowH2: false, ...untimed });

  return {
    /** The control path: manifest, attestation, secret exchange, collateral. */
    call: createControlCall(dispatcher, clock),
    /** An agent for the data path. Trust store and proxy are added to `options`. */
    agent(options: AgentOptions = {}, service?: Way['service']): ServiceAgent {
      const agent = new ServiceAgent({ ...options, ...trusting }, { through, clock, service });
      agents.push(agent);
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
