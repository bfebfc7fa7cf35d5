/** A host name or address in the form of URLs and `Host` headers, which put IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);
/** A host name in lower case, without the brackets of an IPv6 literal, and without a dot at its end. */
export const plainHost = (host: string): string => host.replace(/^\[(.*)\]$|\.$/g, '$1').toLowerCase();
/** The host at which this machine reaches a listener on `host`: loopback if `host` is "every interface". */
export const reachableHost = (host: string): string =>
  ({ '0.0.0.0': '127.0.0.1', '::': '::1' })[host] ?? host;
export const serviceUrl = ({ host, port }: { readonly host: string; readonly port: number }): string =>
  `https://${urlHost(host)}:${port}`;
