/** A host name or address as URLs and `Host` have it: IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);

/** Where to reach what listens on `host` from this machine: loopback for what stands for every interface. */
export const reachableHost = (host: string): string =>
  ({ '0.0.0.0': '127.0.0.1', '::': '::1' })[host] ?? host;

/** Lower case, without the brackets of an IPv6 literal and without the dot that ends a full name. */
export const plainHost = (host: string): string =>
  host
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '')
    .toLowerCase();
