/** Decides from https_proxy and no_proxy which connections go through an HTTP proxy. */
import { BlockList, isIP } from 'node:net';
import { PrivatemodeError } from '../errors.ts';
import { plainHost } from './addresses.ts';
import type { Environment } from './trust-store.ts';

/** The HTTP proxy a connection to `host:port` has to go through, or undefined for a direct one. */
export type ProxyRule = (host: string, port: number) => URL | undefined;

/**
 * The rule of `https_proxy`/`HTTPS_PROXY` and `no_proxy`/`NO_PROXY`, read once; the lower-case spelling wins.
 * This program opens only TLS connections, so `http_proxy` counts for nothing. The proxy must speak HTTP
 * CONNECT, over http or https.
 *
 * `no_proxy` is a list separated by commas or blanks: `*`, host names, IP addresses, CIDR blocks. A host name
 * covers the name and everything below it; with a leading dot or `*.`, only what is below it. Each name or
 * address may end in `:port`. Throws config_invalid without quoting the value, which may hold a password.
 */
export function proxyFromEnvironment(env: Environment): ProxyRule {
  const variable = env['https_proxy'] ? 'https_proxy' : 'HTTPS_PROXY';
  const value = env[variable] || '';
  if (value === '') return () => undefined;
  const proxy = parseProxy(variable, value);
  const exceptions = (env['no_proxy'] || env['NO_PROXY'] || '').split(/[,\s]+/);
  const exempt = exceptions.filter((entry) => entry !== '').map(parseException);
  return (host, port) => {
    const name = plainHost(host);
    return exempt.some((matches) => matches(name, port)) ? undefined : proxy;
  };
}

/** A value without a scheme must have a port, because a lone word is more likely a mistake than a host. */
function parseProxy(variable: string, value: string): URL {
  const hasScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(value);
  const url = hasScheme || /:\d+\/?$/.test(value) ? URL.parse(hasScheme ? value : `http://${value}`) : null;
  if (url === null || (url.protocol !== 'http:' && url.protocol !== 'https:') || url.hostname === '') {
    const message = `${variable} wants the address of an HTTP proxy, such as http://proxy.example:3128; unset it where there is none`;
    throw new PrivatemodeError('config_invalid', message);
  }
  if (!isPercentEncoded(`${url.username}:${url.password}`)) {
    const message = `${variable}: in user and password write %25 for %, %40 for @, %3A for : and %2F for /`;
    throw new PrivatemodeError('config_invalid', message);
  }
  return url;
}

/**
 * Whether the text can be decoded. If it cannot, as a password that holds a bare %, each connection would
 * fail only when the text is decoded.
 */
function isPercentEncoded(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}

type Exception = (host: string, port: number) => boolean;

function parseException(entry: string): Exception {
  const block = subnet(entry);
  if (block !== undefined) return block;
  const [, name, port] = /^(\[[^\]]*\]|[^:]*|.*:.*:.*?)(?::(\d+))?$/.exec(entry) ?? [];
  const host = plainHost(name ?? entry);
  const onPort = (actual: number): boolean => port === undefined || Number(port) === actual;
  if (host === '*') return (_, actual) => onPort(actual);
  const suffix = host.replace(/^\*?\.?/, '.');
  const exact = suffix.slice(1) === host;
  return (actual, actualPort) =>
    onPort(actualPort) && ((exact && actual === host) || (isIP(actual) === 0 && actual.endsWith(suffix)));
}

function subnet(entry: string): Exception | undefined {
  const [, address = '', prefix] = /^([^/]*)\/(\d+)$/.exec(entry) ?? [];
  const bits = Number(prefix);
  if (isIP(address) === 0 || bits > (isIP(address) === 4 ? 32 : 128)) return undefined;
  const list = new BlockList();
  list.addSubnet(address, bits, familyOf(address));
  return (host) => isIP(host) !== 0 && list.check(host, familyOf(host));
}

const familyOf = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 4 ? 'ipv4' : 'ipv6');
