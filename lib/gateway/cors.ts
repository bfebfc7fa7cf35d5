/** Which web pages may use the proxy, and the CORS headers that tell their browsers so. */
import { X509Certificate } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIP } from 'node:net';
import { RECEIPT_HEADER_NAMES } from '../transparency/receipt.ts';

export interface CorsPolicy {
  /** Exact origins as browsers write them; `*` allows any; empty: CORS is off. */
  readonly allowedOrigins: readonly string[];
  /**
   * Host names that are ours: the listen address, the names in our certificate and those of --allowed-hosts, which may
   * have a port. Lower case.
   */
  readonly ownNames: readonly string[];
}

export interface OriginDecision {
  /** The message of origin_forbidden, naming the flag; undefined: the request may go on. */
  readonly refusal: string | undefined;
  /** For every response, also errors. */
  readonly headers: Readonly<Record<string, string>>;
}

const EXPOSED = [
  ...RECEIPT_HEADER_NAMES,
  'Privatemode-Proxy-Error',
  'Privatemode-Proxy-Unauthenticated',
  'Privatemode-Proxy-Estimate',
  'Privatemode-Encrypted',
  'Retry-After',
  'Request-Id',
  'X-Request-Id',
].join(', ');
const METHODS = 'GET, HEAD, POST, OPTIONS';
const PREFLIGHT_SECONDS = '86400';

/**
 * Whether the page that sends a request may spend our key. Programs send neither Origin nor Sec-Fetch-Site and pass, and so
 * does an allowed origin. Of the rest only our own pages pass: Sec-Fetch-Site says `same-origin`, or `none` for the address
 * bar; where a browser does not send it, Origin equals Host. A rebound DNS name makes a foreign page look like our own, so
 * this holds only for localhost, IP literals and names known to be ours. Over plain HTTP under such a name, browsers send
 * neither header with a same-origin GET: there a request counts as a browser's if its user agent begins with `Mozilla/` and
 * it brings no key of its own; a page can set anything else (`Accept-Language`).
 */
export function decideOrigin(request: IncomingHttpHeaders, policy: CorsPolicy): OriginDecision {
  const { origin, host } = request;
  const site = request['sec-fetch-site'];
  const headers = corsHeaders(origin, policy);
  if (origin !== undefined && isAllowed(origin, policy)) return { refusal: undefined, headers };

  const fromBrowser = site !== undefined || origin !== undefined || looksLikeBrowser(request);
  const foreign =
    site === undefined
      ? origin !== undefined && !originIsHost(origin, host)
      : site !== 'same-origin' && site !== 'none';
  const rebound = fromBrowser && site !== 'none' && !isOwnHost(host, policy);
  const refusal = foreign
    ? 'a web page of another origin asked; --cors-allowed-origins does not list it'
    : rebound
      ? 'a web page asked under a host name that is not known to be ours; --allowed-hosts does not list it'
      : undefined;
  return { refusal, headers };
}

/** The headers of the response to a CORS preflight (status 204); undefined: the request is none. */
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
    'access-control-allow-methods': METHODS,
    'access-control-max-age': PREFLIGHT_SECONDS,
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

/** Names under which this proxy may be addressed by its own pages. `certificate`: PEM, the leaf first. */
export function ownNames(listenAddress: string, certificate?: string | Buffer): string[] {
  const names = [listenAddress.toLowerCase()];
  if (certificate !== undefined) {
    const alternative = new X509Certificate(certificate).subjectAltName ?? '';
    for (const entry of alternative.split(', '))
      if (entry.startsWith('DNS:')) names.push(entry.slice(4).toLowerCase());
  }
  return names;
}

function corsHeaders(origin: string | undefined, policy: CorsPolicy): Record<string, string> {
  if (policy.allowedOrigins.length === 0) return {};
  if (policy.allowedOrigins.includes('*')) {
    return { 'access-control-allow-origin': '*', 'access-control-expose-headers': EXPOSED };
  }
  // Always, since a cache must not hand the response for one origin to another.
  if (origin === undefined || !isAllowed(origin, policy)) return { vary: 'Origin' };
  return { 'access-control-allow-origin': origin, 'access-control-expose-headers': EXPOSED, vary: 'Origin' };
}

function looksLikeBrowser(headers: IncomingHttpHeaders): boolean {
  if (headers.authorization !== undefined || headers['x-api-key'] !== undefined) return false;
  return headers['user-agent']?.startsWith('Mozilla/') === true;
}

const isAllowed = (origin: string, { allowedOrigins }: CorsPolicy): boolean =>
  allowedOrigins.includes('*') || allowedOrigins.includes(origin.toLowerCase());

/** Browsers leave the scheme's own port out of both. */
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
  const ports = port === '' ? ['80', '443'] : [port]; // browsers leave out the scheme's own
  return ownNames.some(
    (own) =>
      own === name ||
      ports.some((each) => own === `${name}:${each}`) ||
      // A wildcard of a certificate stands for exactly one label.
      (own.startsWith('*.') && own.slice(1) === name.slice(name.indexOf('.'))),
  );
}
