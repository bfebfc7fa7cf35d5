/**
 * Decides which web pages may use the proxy and which host names are ours (DNS rebinding), and makes the CORS
 * headers that tell browsers so.
 */
import { X509Certificate } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { PrivatemodeError } from '../errors.ts';
import { AUDIT_HEADERS } from '../http-rules/headers.ts';

export interface CorsPolicy {
  /** Exact origins as browsers write them; `*` allows any; empty: CORS is off. */
  readonly allowedOrigins: readonly string[];
  /**
   * Host names that are ours: the listen address, the names in our certificate and those of --allowed-hosts,
   * which may have a port. Lower case.
   */
  readonly ownNames: readonly string[];
}

const EXPOSED = [
  ...Object.values(AUDIT_HEADERS),
  'Privatemode-Proxy-Error',
  'Privatemode-Proxy-Unauthenticated',
  'Privatemode-Proxy-Estimate',
  'Privatemode-Proxy-Tools-Left-Out',
  'Privatemode-Encrypted',
  'Retry-After',
  'Request-Id',
  'X-Request-Id',
].join(', ');

/**
 * Refuses the request of a web page that may not spend our key. Programs send neither Origin nor
 * Sec-Fetch-Site, and pass. An allowed origin passes, too. Otherwise only our own pages pass: Sec-Fetch-Site
 * says `same-origin`, or `none` for the address bar; if a browser does not send it, Origin equals Host.
 *
 * A rebound DNS name makes a foreign page look like our own. So this holds only for localhost, IP literals
 * and names known to be ours. Over plain HTTP under a rebound name, browsers send neither header with a
 * same-origin GET; for such requests, `signs` says what else shows a browser. Returns origin_forbidden, whose
 * message names the flag; undefined: the request may go on.
 */
export function foreignPage(
  request: IncomingHttpHeaders,
  policy: CorsPolicy,
  signs: BrowserSigns = {},
): PrivatemodeError | undefined {
  const { origin, host } = request;
  const site = request['sec-fetch-site'];
  if (origin !== undefined && isAllowed(origin, policy)) return undefined;

  const foreign =
    site === undefined
      ? origin !== undefined && !originIsHost(origin, host)
      : site !== 'same-origin' && site !== 'none';
  if (foreign) return forbidden('of another origin asked; --cors-allowed-origins does not list it');

  const fromBrowser = site !== undefined || origin !== undefined || looksLikeBrowser(request, signs);
  const rebound = fromBrowser && site !== 'none' && !isOwnHost(host, policy);
  return rebound
    ? forbidden('asked under a host name that is not known to be ours; --allowed-hosts does not list it')
    : undefined;
}

const forbidden = (what: string): PrivatemodeError =>
  new PrivatemodeError('origin_forbidden', `a web page ${what}`);

/** The headers of the response to a CORS preflight (status 204); undefined: the request is no preflight. */
export function preflightHeaders(
  method: string,
  requested: IncomingHttpHeaders,
  policy: CorsPolicy,
): Record<string, string> | undefined {
  const { origin } = requested;
  if (method !== 'OPTIONS' || origin === undefined || !isAllowed(origin, policy)) return undefined;
  if (requested['access-control-request-method'] === undefined) return undefined;

  const headers: Record<string, string> = {
    ...corsHeaders(origin, policy),
    'access-control-allow-methods': 'GET, HEAD, POST, OPTIONS',
    'access-control-max-age': '86400',
    vary: 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
  };
  delete headers['access-control-expose-headers']; // means nothing in a preflight
  const wanted = requested['access-control-request-headers'];
  if (wanted !== undefined && /^[\w\-!#$%&'*+.^`|~, \t]*$/.test(wanted))
    headers['access-control-allow-headers'] = wanted;
  if (requested['access-control-request-private-network'] === 'true') {
    headers['access-control-allow-private-network'] = 'true';
  }
  return headers;
}

/** The host names under which the proxy's own pages may address it. `certificate`: PEM, the leaf first. */
export function ownNames(listenAddress: string, certificate?: string | Buffer): string[] {
  const alternative = certificate && new X509Certificate(certificate).subjectAltName;
  const entries = alternative?.split(', ').filter((entry) => entry.startsWith('DNS:')) ?? [];
  return [listenAddress, ...entries.map((entry) => entry.slice('DNS:'.length))].map((name) =>
    name.toLowerCase(),
  );
}

/** The CORS headers of every response, errors included. */
export function corsHeaders(origin: string | undefined, policy: CorsPolicy): Record<string, string> {
  if (policy.allowedOrigins.length === 0) return {};
  if (policy.allowedOrigins.includes('*')) {
    return { 'access-control-allow-origin': '*', 'access-control-expose-headers': EXPOSED };
  }
  // Vary comes in both cases, because a cache must not give the response for one origin to another.
  if (origin === undefined || !isAllowed(origin, policy)) return { vary: 'Origin' };
  return { 'access-control-allow-origin': origin, 'access-control-expose-headers': EXPOSED, vary: 'Origin' };
}

/** What shows that a request without Origin and Sec-Fetch-Site comes from a browser. */
interface BrowserSigns {
  /**
   * The request has a key, and gets nothing without the right one. A rebound page cannot have that key, so a
   * program sent the request.
   */
  readonly keyDecides?: boolean;
  /**
   * Accept-Language shows a browser, because browsers always send one. `*` does not: a page can set it, but
   * Node's fetch sends it too.
   */
  readonly languageTells?: boolean;
}

function looksLikeBrowser(
  headers: IncomingHttpHeaders,
  { keyDecides = false, languageTells = false }: BrowserSigns,
): boolean {
  if (keyDecides) return false;
  if (headers['user-agent']?.startsWith('Mozilla/') === true) return true;
  return languageTells && (headers['accept-language'] ?? '*') !== '*';
}

const isAllowed = (origin: string, { allowedOrigins }: CorsPolicy): boolean =>
  allowedOrigins.includes('*') || allowedOrigins.includes(origin.toLowerCase());

/**
 * Whether both name the same host and port. The scheme's default port, which browsers leave out of both, does
 * not matter.
 */
function originIsHost(origin: string, host: string | undefined): boolean {
  const match = /^(https?):\/\/([^/]+)$/i.exec(origin);
  if (match === null || host === undefined) return false;
  const ownPort = match[1]?.toLowerCase() === 'https' ? /:443$/ : /:80$/;
  return (match[2] as string).replace(ownPort, '').toLowerCase() === host.replace(ownPort, '').toLowerCase();
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
