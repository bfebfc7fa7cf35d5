/** A host name or address as it is written in URLs and in `Host`: IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);
/** A host name in lower case, without the brackets of an IPv6 literal, and without a dot at its end. */
export const plainHost = (host: string): string => host.replace(/^\[(.*)\]$|\.$/g, '$1').toLowerCase();
/** The host under which this machine reaches a listener on `host`: loopback for "every interface". */
export const reachableHost = (host: string): string =>
  ({ '0.0.0.0': '127.0.0.1', '::': '::1' })[host] ?? host;
/** `https://HOST:PORT` of the service. */
export const serviceUrl = ({ host, port }: { readonly host: string; readonly port: number }): string =>
  `https://${urlHost(host)}:${port}`;
