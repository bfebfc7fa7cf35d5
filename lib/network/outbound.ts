/** How this process reaches the outside: the connections of the control path and of the data path. */
import type { AgentOptions } from 'node:https';
import type { Socket } from 'node:net';
import { addAbortSignal } from 'node:stream';
import { createSecureContext, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent } from 'undici';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Service, ServiceAgent } from './agent.ts';
import { limitedControlCall } from './call-limits.ts';
import { type Environment, outboundProxy } from './outbound-proxy.ts';
import { transportError } from './transport-errors.ts';
import { loadTrustStore } from './trust-store.ts';

/** The ALPN list as a DataView: Node copies other lists into its pool, and a connection then keeps 64 KiB. */
const HTTP_1 = new DataView(new TextEncoder().encode('\bhttp/1.1').buffer); // \b is the length of the name: 8

export type Outbound = ReturnType<typeof createOutbound>;

/**
 * Opens connections to the outside. `env` is read once. `connectTimeout`: ms until a control connection is
 * usable, and until the HTTP proxy responds. `authorities`: certificates to trust, in PEM. Throws
 * config_invalid.
 */
export function createOutbound(
  env: Environment,
  options: { connectTimeout: number; clock: Clock; authorities?: readonly string[] },
) {
  const { connectTimeout, clock, authorities = loadTrustStore(env) } = options;
  // All connections share one context, because parsing a system's authorities costs more than a handshake.
  const secureContext = createSecureContext({ ca: [...authorities] });
  // TLS sessions are not resumed, because Node would get no certificate in which to check the host name.
  const trusting = { secureContext, maxCachedSessions: 0 };
  const closed = new AbortController(); // ends connections that are being opened; undici does not end them
  const through = outboundProxy(env, { secureContext, connectTimeout, clock, closed: closed.signal });
  const connect = buildConnector({ ...trusting, allowH2: false, timeout: connectTimeout });
  const dispatcher = new ControlAgent({
    allowH2: false,
    headersTimeout: 0, // the limit of each call replaces undici's timers, which begin anew with every byte
    bodyTimeout: 0,
    connect(options, callback) {
      const { protocol, hostname, port } = options;
      if (protocol !== 'https:') return connect(options, callback);
      const secure = (httpSocket?: Socket): TLSSocket => {
        // The connector returns its socket, although its declared type does not say so.
        const socket: unknown = connect({ ...options, ...(httpSocket && { httpSocket }) }, callback);
        return addAbortSignal(closed.signal, socket as TLSSocket);
      };
      through(hostname, Number(port || 443), secure).catch((error) => callback(error, null));
    },
  });

  return {
    /** Makes a call on the control path. May throw upstream_redirect, too. No error quotes what was sent. */
    call: limitedControlCall(
      async ({ method, url, headers, body = null }, host, signal) => {
        const { origin, pathname, search } = new URL(url);
        const to = { origin, path: pathname + search, method, body, signal };
        const sent = { 'accept-encoding': 'identity', ...headers };
        // undici's own request() would bring all of undici into the bundle.
        const answer = await dispatcher.request({ ...to, headers: sent });
        const { statusCode: status, headers: answered, body: bytes } = answer;
        const redirect = status >= 300 && status < 400;
        if (!redirect && (answered['content-encoding'] ?? 'identity') === 'identity')
          return { status, headers: answered, body: bytes };
        bytes.on('error', () => {}).destroy();
        throw redirect
          ? new PrivatemodeError('upstream_redirect', `${host} answered with a redirect (status ${status})`)
          : new PrivatemodeError('control_api_failed', `${host} answered in an encoding nobody asked for`);
      },
      transportError,
      clock,
    ),
    agent(options: AgentOptions, service: Service): ServiceAgent {
      const agent = new ServiceAgent(
        { ...options, ...trusting, ALPNProtocols: HTTP_1 },
        service,
        through,
        clock,
      );
      closed.signal.addEventListener('abort', () => agent.destroy());
      return agent;
    },
    /** Ends all connections (open ones, those being opened, and those of agents), so that requests fail. */
    async close(): Promise<void> {
      await dispatcher.destroy();
      closed.abort();
    },
  };
}
