/** A client for HTTP proxies, because those of Node and undici do not name a certificate that they refuse. */
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { BlockList, isIP, type Socket } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { plainHost, urlHost } from './addresses.ts';
import { describeRefusal, watchCertificate } from './transport-errors.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

interface ProxyOptions {
  readonly secureContext: SecureContext; // used if the proxy itself speaks TLS
  readonly connectTimeout: number; // ms within which the proxy has to open a connection
  readonly clock: Clock;
  readonly closed: AbortSignal; // ends the connections that the proxy has not opened yet
}

/**
 * Calls `secure` with a raw connection through the proxy. For a direct connection, calls `secure` at once
 * without one. Rejects with upstream_unreachable, upstream_connect_timeout or upstream_tls_untrusted. No
 * error quotes a password.
 */
export type Through = (host: string, port: number, secure: (raw?: Socket) => TLSSocket) => Promise<TLSSocket>;

/**
 * Reads the proxy from `https_proxy`, and exceptions from `no_proxy`; lower case wins. Undefined if every
 * connection is direct. Throws config_invalid, and quotes no value, since it may hold a password. `no_proxy`
 * lists `*`, names, IP addresses and CIDR blocks, separated by commas or blanks. A name covers itself and all
 * names below it; with a leading dot or `*.`, only those below. All except CIDR blocks may end in `:port`.
 */
export function proxyFromEnvironment(env: Environment) {
  const variable = env['https_proxy'] ? 'https_proxy' : 'HTTPS_PROXY';
  const value = env[variable];
  if (!value) return undefined;
  const exceptions = (env['no_proxy'] || env['NO_PROXY'] || '').split(/[,\s]+/);
  const exempts = (host: string, port: number): boolean =>
    exceptions.some((entry) => covers(entry, plainHost(host), port));
  // A value without a scheme must have a port, because a lone word is more likely a mistake than a host.
  const whole = /^[^/]+:\d+\/?$/.test(value) ? `http://${value}` : value;
  try {
    if (!/^https?:\/\//i.test(whole)) throw new Error('no proxy');
    const proxy = new URL(whole);
    const pair = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
    const authorization = `Basic ${Buffer.from(pair).toString('base64')}`;
    return { proxy, credentials: pair === ':' ? {} : { 'proxy-authorization': authorization }, exempts };
  } catch {
    const message = `${variable} wants the address of an HTTP proxy, such as http://proxy.example:3128; in user and password %25 stands for %, %40 for @, %3A for : and %2F for /`;
    throw new PrivatemodeError('config_invalid', message);
  }
}

/** Makes the function that opens connections as `env` says. Throws as proxyFromEnvironment does. */
export function outboundProxy(env: Environment, options: ProxyOptions): Through {
  const { secureContext, connectTimeout, clock, closed } = options;
  const rule = proxyFromEnvironment(env);
  if (rule === undefined) return async (target, _port, secure) => watchCertificate(secure(), target);
  const { proxy, credentials, exempts } = rule;
  const name = `the HTTP proxy ${proxy.host}`;
  const isSecure = proxy.protocol === 'https:';
  const send = isSecure ? httpsRequest : httpRequest;
  const host = plainHost(proxy.hostname);
  const to = {
    method: 'CONNECT',
    host,
    port: proxy.port || (isSecure ? 443 : 80),
    servername: isIP(host) ? '' : host,
    secureContext,
    ALPNProtocols: ['http/1.1'],
    agent: false as const, // a resumed TLS session would show no certificate of the proxy
    signal: closed,
  };

  /** Opens a tunnel by CONNECT (RFC 9110 9.3.6). The proxy resolves the host name. */
  async function open(authority: string): Promise<Socket> {
    const asked = send({ ...to, path: authority, headers: { host: authority, ...credentials } });
    if (isSecure) asked.once('socket', (socket) => watchCertificate(socket as TLSSocket, name));
    const message = `${name} opened no connection to ${authority} within ${connectTimeout / 1000} s`;
    const late = new PrivatemodeError('upstream_connect_timeout', message);
    const cancel = clock.after(connectTimeout, () => asked.destroy(late), 'waiting');
    try {
      // Bytes that a server sends first would be lost. In TLS the client speaks first, so no such bytes come.
      const [{ statusCode }, socket] = await once(asked.end(), 'connect');
      if (statusCode === 200) return socket;
      socket.on('error', () => {}).destroy();
      const refused = `${name} refused a connection to ${authority} with status ${statusCode}`;
      throw new PrivatemodeError('upstream_unreachable', refused);
    } catch (cause) {
      if (cause instanceof PrivatemodeError) throw cause;
      const { code = 'connection failed' } = cause as NodeJS.ErrnoException;
      const text = `${name} cannot be reached (${code})`;
      throw describeRefusal(cause, name) ?? new PrivatemodeError('upstream_unreachable', text, { cause });
    } finally {
      cancel();
    }
  }

  return async (target, port, secure) => {
    const socket = exempts(target, port) ? undefined : await open(`${urlHost(target)}:${port}`);
    return watchCertificate(secure(socket), target);
  };
}

/** Whether an entry of `no_proxy` covers `host`, which plainHost has normalised. */
function covers(entry: string, host: string, port: number): boolean {
  const family = isIP(host);
  const [, address = '', prefix] = /^([^/]*)\/(\d{1,3})$/.exec(entry) ?? [];
  if (family !== 0 && isIP(address) === family && Number(prefix) <= (family === 4 ? 32 : 128)) {
    const block = new BlockList();
    block.addSubnet(address, Number(prefix), `ipv${family as 4 | 6}`);
    return block.check(host, `ipv${family as 4 | 6}`);
  }
  // More than one colon outside of brackets is an IPv6 address without a port.
  const [, name = entry, only = port] = /^(\[[^\]]*\]|[^:]*):(\d+)$/.exec(entry) ?? [];
  if (Number(only) !== port) return false;
  const covered = plainHost(name);
  const below = covered.replace(/^\*?\.?/, '.');
  return covered === '*' || covered === host || (family === 0 && host.endsWith(below));
}
