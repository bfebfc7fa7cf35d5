/**
 * The HTTP proxy of the environment: which connections go through it, and how it opens them. Node's
 * `proxyEnv` and undici's EnvHttpProxyAgent read no_proxy in two different ways, trust their own store for a
 * proxy that speaks TLS, and keep to themselves which certificate was refused behind the proxy.
 */
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { BlockList, isIP, type Socket } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { plainHost, urlHost } from './addresses.ts';
import { describeRefusal, watchCertificate } from './failures.ts';
import type { Environment } from './trust-store.ts';

interface ProxyOptions {
  /** For a proxy that itself speaks TLS. */
  readonly secureContext: SecureContext;
  /** ms until the proxy must have opened a connection. */
  readonly connectTimeout: number;
  readonly clock: Clock;
  /** Ends the connections that the proxy has not opened yet. */
  readonly closed: AbortSignal;
}

/**
 * Calls `begin` with a raw connection to `host:port` through the proxy, or at once with none if the
 * connection is made directly. Calls `failed` with upstream_unreachable, upstream_connect_timeout or
 * upstream_tls_untrusted; the message names the proxy, never its credentials.
 */
export type Through = (
  host: string,
  port: number,
  begin: (socket?: Socket) => void,
  failed: (error: Error) => void,
) => void;

/**
 * The proxy of `https_proxy`/`HTTPS_PROXY`, without the exceptions of `no_proxy`/`NO_PROXY`; the lower-case
 * spelling wins. This program opens only TLS connections, so `http_proxy` counts for nothing. The proxy must
 * speak HTTP CONNECT, over http or https. Undefined: all connections are direct.
 *
 * `no_proxy` is a list separated by commas or blanks: `*`, host names, IP addresses, CIDR blocks. A host name
 * covers the name and everything below it; with a leading dot or `*.`, only what is below it. Each name or
 * address may end in `:port`. Throws config_invalid without quoting the value, which may hold a password.
 */
export function proxyFromEnvironment(env: Environment) {
  const variable = env['https_proxy'] ? 'https_proxy' : 'HTTPS_PROXY';
  const value = env[variable];
  if (!value) return undefined;
  const exceptions = (env['no_proxy'] || env['NO_PROXY'] || '').split(/[,\s]+/);
  const exempts = (host: string, port: number): boolean =>
    exceptions.some((entry) => covers(entry, plainHost(host), port));
  return { ...parseProxy(variable, value), exempts };
}

/** The way through the proxy of `env`, which is read once. Throws as proxyFromEnvironment does. */
export function outboundProxy(env: Environment, options: ProxyOptions): Through {
  const { secureContext, connectTimeout, clock, closed } = options;
  const rule = proxyFromEnvironment(env);
  if (rule === undefined) return (_host, _port, begin) => begin();
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
    // A new agent each time: it has no TLS session to resume, so that the proxy shows its certificate.
    agent: false as const,
    signal: closed,
  };

  /** Asks the proxy for a raw connection (CONNECT, RFC 9110 9.3.6). The name goes there unresolved. */
  async function open(authority: string): Promise<Socket> {
    const asked = send({ ...to, path: authority, headers: { host: authority, ...credentials } });
    if (isSecure) asked.once('socket', (socket) => watchCertificate(socket as TLSSocket, name));
    const message = `${name} opened no connection to ${authority} within ${connectTimeout / 1000} s`;
    const late = new PrivatemodeError('upstream_connect_timeout', message);
    const cancel = clock.after(connectTimeout, () => asked.destroy(late), 'waiting');
    try {
      // The event may also bring the first bytes of the server: none, because a TLS server speaks second.
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

  return (target, port, begin, failed) => {
    if (exempts(target, port)) begin();
    else open(`${urlHost(target)}:${port}`).then(begin, failed);
  };
}

/** A value without a scheme must have a port, because a lone word is more likely a mistake than a host. */
function parseProxy(variable: string, value: string) {
  const hasScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(value);
  try {
    const proxy = new URL(hasScheme ? value : `http://${value}`);
    if (!/^https?:$/.test(proxy.protocol) || !(hasScheme || /:\d+\/?$/.test(value)))
      throw new Error('no proxy');
    const pair = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
    const authorization = `Basic ${Buffer.from(pair).toString('base64')}`;
    return { proxy, credentials: pair === ':' ? {} : { 'proxy-authorization': authorization } };
  } catch {
    const message = `${variable} wants the address of an HTTP proxy, such as http://proxy.example:3128; in user and password %25 stands for %, %40 for @, %3A for : and %2F for /`;
    throw new PrivatemodeError('config_invalid', message);
  }
}

/** Whether an entry of `no_proxy` covers a host, which is in lower case and without brackets. */
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
  const isItself = covered === host && below.slice(1) === covered;
  return covered === '*' || isItself || (family === 0 && host.endsWith(below));
}
