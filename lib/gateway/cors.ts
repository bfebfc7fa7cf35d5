/** Which web pages may use the proxy, which host names are its own (DNS rebinding), and the CORS headers. */
import { X509Certificate } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { PrivatemodeError } from '../errors.ts';
import { AUDIT_HEADERS } from '../http-rules/headers.ts';

export interface CorsPolicy {
  readonly allowedOrigins: readonly string[]; // as browsers write them; `*` allows all; if empty, CORS is off
  readonly ownNames: readonly string[]; // host names in lower case; those of --allowed-hosts may have a port
}

/** Whether the user agent is a browser's. Web pages can change the user agent only in Firefox. */
export const saysBrowser = (headers: IncomingHttpHeaders): boolean =>
  headers['user-agent']?.startsWith('Mozilla/') === true;

/**
 * Returns origin_forbidden for a web page that may not use our key. Programs pass; they send neither Origin
 * nor Sec-Fetch-Site. Pages of allowed origins and the proxy's own pages pass. On the proxy's own pages
 * Sec-Fetch-Site is `same-origin` or `none` (the address bar). Without Sec-Fetch-Site, Origin must equal
 * Host. DNS rebinding makes a foreign page look like our own, so the host must be localhost, an IP literal or
 * a known name of the proxy. A foreign page sends neither header with a GET over plain HTTP:
 * `looksLikeBrowser` tells such a page from a program.
 */
export function foreignPage(headers: IncomingHttpHeaders, policy: CorsPolicy, looksLikeBrowser: boolean) {
  const { origin, host, 'sec-fetch-site': site } = headers;
  if (origin !== undefined && isAllowed(origin, policy)) return undefined;
  const isOrigin = origin === undefined || originIsHost(origin, host);
  const isOurs = site === undefined ? isOrigin : site === 'same-origin' || site === 'none';
  if (!isOurs) return forbidden('of another origin asked; --cors-allowed-origins does not list it');
  const fromBrowser = site !== undefined || origin !== undefined || looksLikeBrowser;
  if (!fromBrowser || site === 'none' || isOwnHost(host, policy)) return undefined;
  return forbidden('asked under a host name that is not known to be ours; --allowed-hosts does not list it');
}

const forbidden = (what: string): PrivatemodeError =>
  new PrivatemodeError('origin_forbidden', `a web page ${what}`);

const EXPOSED = [
  ...Object.values(AUDIT_HEADERS),
  'Privatemode-Proxy-Error, Privatemode-Proxy-Unauthenticated, Privatemode-Proxy-Estimate',
  'Privatemode-Proxy-Tools-Left-Out, Privatemode-Encrypted, Retry-After, Request-Id, X-Request-Id',
].join(', ');

/** The CORS headers of every response, errors included. */
export function corsHeaders(origin: string | undefined, policy: CorsPolicy): Record<string, string> {
  if (policy.allowedOrigins.length === 0) return {};
  const exposed = { 'access-control-expose-headers': EXPOSED };
  if (policy.allowedOrigins.includes('*')) return { 'access-control-allow-origin': '*', ...exposed };
  const vary = 'Origin'; // a cache must not give the response for one origin to another
  if (origin === undefined || !isAllowed(origin, policy)) return { vary };
  return { 'access-control-allow-origin': origin, ...exposed, vary };
}

/** The headers of the response to a preflight. Undefined for other requests and for other origins. */
export function preflightHeaders(method: string, requested: IncomingHttpHeaders, policy: CorsPolicy) {
  const { origin, 'access-control-request-headers': wanted } = requested;
  const isPreflight = method === 'OPTIONS' && requested['access-control-request-method'] !== undefined;
  if (!isPreflight || origin === undefined || !isAllowed(origin, policy)) return undefined;
  const headers: Record<string, string> = {
    'access-control-allow-origin': policy.allowedOrigins.includes('*') ? '*' : origin,
    'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
    'access-control-max-age': '86400',
    vary: 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
  };
  if (wanted !== undefined && /^[\w\-!#$%&'*+.^`|~, \t]*$/.test(wanted))
    headers['access-control-allow-headers'] = wanted;
  return headers;
}

/** The host names by which the proxy's own pages may address the proxy. `certificate`: PEM, leaf first. */
export function ownNames(listenAddress: string, certificate?: string | Buffer): string[] {
  const alternative = certificate && new X509Certificate(certificate).subjectAltName;
  const names = alternative?.split(', ').filter((entry) => entry.startsWith('DNS:')) ?? [];
  return [listenAddress, ...names.map((name) => name.slice('DNS:'.length))].map((name) => name.toLowerCase());
}

const isAllowed = (origin: string, { allowedOrigins }: CorsPolicy): boolean =>
  allowedOrigins.includes('*') || allowedOrigins.includes(origin.toLowerCase());

/** Whether an Origin names this Host. Browsers leave the scheme's default port out of both headers. */
function originIsHost(origin: string, host: string | undefined): boolean {
  const [, scheme = '', ofOrigin] = /^(https?):\/\/([^/]+)$/i.exec(origin) ?? [];
  if (ofOrigin === undefined || host === undefined) return false;
  const ownPort = scheme.toLowerCase() === 'https' ? /:443$/ : /:80$/;
  return ofOrigin.replace(ownPort, '').toLowerCase() === host.replace(ownPort, '').toLowerCase();
}

function isOwnHost(host: string | undefined, { ownNames }: CorsPolicy): boolean {
  const [, ipv6, plain = '', port = ''] = /^(?:\[([^\]]*)\]|([^:]*))(?::(\d*))?$/.exec(host ?? '') ?? [];
  const name = (ipv6 ?? plain).toLowerCase().replace(/\.$/, '');
  if (name === '') return false;
  if (name === 'localhost' || isIP(name) !== 0) return true;
  const ports = port === '' ? ['80', '443'] : [port]; // browsers leave out the scheme's default port
  const wildcard = name.replace(/^[^.]*(?=\.)/, '*'); // in a certificate, `*` stands for exactly one label
  const names = [name, wildcard, ...ports.map((each) => `${name}:${each}`)];
  return ownNames.some((own) => names.includes(own));
}
