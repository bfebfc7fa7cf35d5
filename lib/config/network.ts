import { isIP } from 'node:net';
import { PrivatemodeError } from '../errors.ts';
import { parsePort, wants } from './values.ts';

export interface HostPort {
  /** Lower case, no trailing dot; IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
}

/** Domains of the real service: nobody but genuine hardware may stand for them. */
const PRODUCTION_DOMAINS = ['privatemode.ai', 'confidential.cloud'];

/** `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address. Throws config_invalid. */
export function parseHostPort(flag: string, text: string, defaultPort: number | undefined): HostPort {
  const wanted = defaultPort === undefined ? 'HOST:PORT' : 'HOST or HOST:PORT';
  const alone = defaultPort === undefined ? /^:?(\d+)$/ : /^:(\d+)$/;
  const [, onlyPort] = alone.exec(text) ?? [];
  if (onlyPort !== undefined) {
    const hint = `write 127.0.0.1:${onlyPort} for this machine alone, 0.0.0.0:${onlyPort} for all`;
    throw wants(flag, wanted, text, defaultPort === undefined ? hint : undefined);
  }
  if (/^[a-z]+:\/\//i.test(text)) throw wants(flag, `${wanted} without a scheme or path`, text);
  const match = isIP(text) === 6 ? [text, text] : /^(?:\[([^\]]+)\]|([^:]+))(?::(.*))?$/.exec(text);
  if (match === null) throw wants(flag, wanted, text);
  const port = match[3] === undefined ? defaultPort : parsePort(`the port of ${flag}`, match[3]);
  if (port === undefined) throw wants(flag, wanted, text);
  if (match[1] !== undefined && isIP(match[1]) !== 6)
    throw wants(flag, 'an IPv6 address between the brackets', text);
  return { host: match[1]?.toLowerCase() ?? parseHost(flag, match[2] as string), port };
}

/** A host name or IP address, normalised. Throws config_invalid. */
export function parseHost(flag: string, text: string): string {
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text;
  if (isIP(bare) === 6) return bare.toLowerCase();
  const name = text.toLowerCase().replace(/\.$/, '');
  if (name.length > 253 || !/^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/.test(name)) {
    const port = /^[^:]*:(\d+)$/.exec(text)?.[1];
    const hint = port === undefined ? undefined : `the port goes into --port ${port}`;
    throw wants(flag, 'a host name or an IP address', text, flag === '--listen-address' ? hint : undefined);
  }
  return name;
}

/** https, or http towards this machine; no trailing slash. Throws config_invalid. */
export function parseBaseUrl(flag: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const safe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.hostname));
  if (url === undefined || !safe || url.search !== '' || url.hash !== '' || url.username !== '') {
    throw wants(flag, 'an https URL without a query', text);
  }
  return url.href.replace(/\/+$/, '');
}

/**
 * One of --cors-allowed-origins, as a browser would send it: any scheme, no path, the scheme's own port left out.
 * Throws config_invalid.
 */
export function parseOrigin(flag: string, text: string): string {
  if (text === '*') return text;
  if (text === 'null') {
    throw new PrivatemodeError(
      'config_invalid',
      `${flag}: "null" stands for any sandboxed page; write * if you mean that`,
    );
  }
  const match = /^([a-z][a-z0-9+.-]*):\/\/(?:[a-z0-9._~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i.exec(text);
  if (match === null)
    throw wants(flag, 'exact origins such as https://chat.example.com, without a path, or *', text);
  const ownPort = { http: ':80', https: ':443' }[(match[1] as string).toLowerCase()];
  const origin = text.toLowerCase();
  return ownPort !== undefined && origin.endsWith(ownPort) ? origin.slice(0, -ownPort.length) : origin;
}

const NO_PORT = -1;

/** One of --allowed-hosts, as `Host` has it: `name` or `name:port`, normalised. Throws config_invalid. */
export function parseOwnHost(flag: string, text: string): string {
  const { host, port } = parseHostPort(flag, text, NO_PORT);
  if (port === 0) throw wants(flag, 'host names with an optional port', text);
  const name = host.includes(':') ? `[${host}]` : host;
  return port === NO_PORT ? name : `${name}:${port}`;
}

export function isLoopback(host: string): boolean {
  return (
    host === 'localhost' ||
    host === '::1' ||
    host === '[::1]' ||
    (isIP(host) === 4 && host.startsWith('127.'))
  );
}

/** `host` normalised, as by parseHostPort. */
export function isProductionHost(host: string): boolean {
  return PRODUCTION_DOMAINS.some((domain) => host === domain || host.endsWith(`.${domain}`));
}
