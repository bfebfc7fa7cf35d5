/** A host name or address as URLs and `Host` have it: IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);

/** Lower case, without the brackets of an IPv6 literal and without the dot that ends a full name. */
export const plainHost = (host: string): string =>
  host
    .replace(/^\[(.*)\]$/, '$1')
    .replace(/\.$/, '')
    .toLowerCase();
