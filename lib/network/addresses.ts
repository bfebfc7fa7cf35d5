/** A host name or address as it is written in URLs and in `Host`: IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);

/**
 * The host under which this machine reaches a listener on `host`: loopback if `host` stands for every
 * interface.
 */
export const reachableHost = (host: string): string =>
  ({ '0.0.0.0': '127.0.0.1', '::': '::1' })[host] ?? host;

/**
 * A host name in lower case, without the brackets of an IPv6 literal and without the dot that ends a full
 * name.
 */
export const plainHost = (host: string): string =>
  host
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '')
    .toLowerCase();

/** `https://HOST:PORT` of the service. */
export const serviceUrl = ({ host, port }: { readonly host: string; readonly port: number }): string =>
  `https://${urlHost(host)}:${port}`;
