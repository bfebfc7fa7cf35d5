/** How this process reaches the outside: the connections of the control path and of the data path. */
import { X509Certificate } from 'node:crypto';
import type { AgentOptions } from 'node:https';
import type { Socket } from 'node:net';
import { addAbortSignal } from 'node:stream';
import { createSecureContext, getCACertificates, type TLSSocket } from 'node:tls';
import { buildConnector, Agent as ControlAgent } from 'undici';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { readNamed } from '../files/path-refusal.ts';
import { type Service, ServiceAgent } from './agent.ts';
import { limitedControlCall } from './control-call.ts';
import { transportError } from './failures.ts';
import { type Environment, outboundProxy } from './outbound-proxy.ts';

/** A DataView: Node copies any other list into its pool, 64 KiB of which then stay with a connection. */
const HTTP_1 = new DataView(new TextEncoder().encode('\bhttp/1.1').buffer); // \b: 8 bytes follow

export type Outbound = ReturnType<typeof createOutbound>;

/**
 * Reads https_proxy and no_proxy of `env`, once. `connectTimeout`: ms to a usable connection on the control
 * path, and to a response of the HTTP proxy. `authorities`: whom to trust, in PEM. Throws config_invalid.
 */
export function createOutbound(
  env: Environment,
  options: { connectTimeout: number; clock: Clock; authorities?: readonly string[] },
) {
  const { connectTimeout, clock, authorities = loadTrustStore(env) } = options;
  // All connections share it: to parse a system's authorities costs more than a handshake.
  const secureContext = createSecureContext({ ca: [...authorities] });
  // No connection resumes a TLS session: it would show no certificate, whose host name Node could check.
  const trusting = { secureContext, maxCachedSessions: 0 };
  const closed = new AbortController(); // ends what is being opened, which undici leaves alone
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
        // The declared type hides it, but the connector hands out its socket.
        const socket: unknown = connect({ ...options, ...(httpSocket && { httpSocket }) }, callback);
        return addAbortSignal(closed.signal, socket as TLSSocket);
      };
      through(hostname, Number(port || 443), secure).catch((error) => callback(error, null));
    },
  });

  return {
    /** The control path. Throws also upstream_redirect and transportError's; no text quotes what was sent. */
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
    /** Ends all connections, those of the agents too, and those that are being opened; requests fail. */
    async close(): Promise<void> {
      await dispatcher.destroy();
      closed.abort();
    },
  };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/**
 * PEM, one certificate each: exactly those of the file SSL_CERT_FILE, if that is set and not empty
 * (docs/protocol/inference.md 1); else the stores of the system and of Node. Throws config_invalid.
 */
export function loadTrustStore(env: Environment): readonly string[] {
  const path = env['SSL_CERT_FILE'];
  if (!path) return [...new Set([...getCACertificates('system'), ...getCACertificates('bundled')])];
  const pem = readNamed(`the file ${JSON.stringify(path)} of SSL_CERT_FILE`, path).toString('latin1');
  // An entry that cannot be read is left out; a bundle of nothing but such entries is a mistake.
  const certificates = (pem.match(CERTIFICATE) ?? []).filter(isCertificate);
  if (certificates.length > 0) return certificates;
  throw new PrivatemodeError('config_invalid', `SSL_CERT_FILE: ${path} holds no PEM certificate`);
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}
