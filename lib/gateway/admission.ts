/**
 * What a request is, decided from its head before anything is done for it; which web pages may use the proxy, and the CORS
 * headers that tell their browsers so.
 */
import { X509Certificate } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import type { LocalId } from '../api/endpoints.ts';
import type { ErrorFormat } from '../api/error-format.ts';
import { type EndpointMatch, type LocalMatch, matchEndpoint, type Refusal } from '../api/match-endpoint.ts';
import { type Client, requireEndpoint } from '../clients/authenticate.ts';
import type { Clients } from '../clients/clients.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { RECEIPT_HEADER_NAMES } from '../exchange/response-head.ts';
import { type FallbackMode, isReplaced, ownKey } from '../pipeline/rewrite-auth.ts';

export interface CorsPolicy {
  /** Exact origins as browsers write them; `*` allows any; empty: CORS is off. */
  readonly allowedOrigins: readonly string[];
  /**
   * Host names that are ours: the listen address, the names in our certificate and those of --allowed-hosts, which may
   * have a port. Lower case.
   */
  readonly ownNames: readonly string[];
}

/** Whose keys count: of which requests the key decides what they get. */
export interface Keys {
  readonly clients?: Pick<Clients, 'authenticate'> | undefined;
  readonly configuredKey: string | undefined;
  readonly fallback: FallbackMode;
}

export type Admission =
  | EndpointMatch
  | LocalMatch
  | Refusal
  | { readonly kind: 'preflight'; readonly format: ErrorFormat; readonly headers: Record<string, string> };

/** `client` is known where a token of it came, also where it is refused what it asked for. */
interface Admitted {
  readonly admission: Admission;
  readonly client: Client | undefined;
}

/**
 * In this order: an ambiguous head, a preflight, a foreign web page, what no table has and, with `clients`, a stranger and what a
 * client may not use. `headers` go with every response. `offered`: the optional paths that are served.
 */
export function admit(
  req: IncomingMessage,
  policy: CorsPolicy,
  { offered, ...keys }: Keys & { readonly offered: readonly LocalId[] },
): Admitted & { readonly headers: Readonly<Record<string, string>> } {
  const { clients } = keys;
  const admission = admissionOf(req, policy, offered, keys);
  const headers = corsHeaders(req.headers.origin, policy);
  if (clients === undefined) return { admission, client: undefined, headers };
  return { ...admitClient(req, admission, clients), headers };
}

/** What the proxy says about itself to everybody. */
const OPEN: ReadonlySet<LocalId> = new Set<LocalId>(['root', 'hello', 'healthz', 'readyz']);

function admitClient(
  req: IncomingMessage,
  admission: Admission,
  clients: Pick<Clients, 'authenticate'>,
): Admitted {
  let client: Client | undefined;
  if (admission.kind === 'refusal' || admission.kind === 'preflight') return { admission, client };
  if (admission.kind === 'local' && OPEN.has(admission.id)) return { admission, client };
  try {
    client = clients.authenticate(
      {
        authorization: req.headers.authorization,
        apiKeyHeader: req.headers['x-api-key'] as string | undefined,
        address: req.socket.remoteAddress,
      },
      req.socket,
    );
    if (admission.kind === 'endpoint') requireEndpoint(client, admission.endpoint.id);
    else if (admission.id === 'count_tokens') requireEndpoint(client, 'messages');
    return { admission, client };
  } catch (thrown) {
    const error = asPrivatemodeError(thrown);
    return { admission: { kind: 'refusal', error, format: admission.format }, client };
  }
}

function admissionOf(
  req: IncomingMessage,
  policy: CorsPolicy,
  offered: readonly LocalId[],
  keys: Keys,
): Admission {
  const found = matchEndpoint(req.method as string, req.url as string, offered);
  const { format } = found;
  try {
    checkHead(req.rawHeaders, req.httpVersion);
  } catch (thrown) {
    return { kind: 'refusal', error: thrown as PrivatemodeError, format };
  }
  const preflight = preflightHeaders(req.method as string, req.headers, policy);
  if (preflight !== undefined) return { kind: 'preflight', format, headers: preflight };
  const foreign = foreignPage(req.headers, policy, { keyDecides: keyDecides(found, req.headers, keys) });
  if (foreign !== undefined) {
    return { kind: 'refusal', error: foreign, format };
  }
  return found;
}

/**
 * Whether what is asked for depends on a key in the request: a token of --clients, or a key that the service will judge. One that
 * the configured key replaces, or that nobody looks at, could be anything.
 */
function keyDecides(found: Admission, headers: IncomingHttpHeaders, { clients, ...keys }: Keys): boolean {
  const sent = {
    authorization: headers.authorization,
    apiKeyHeader: headers['x-api-key'] as string | undefined,
  };
  if (ownKey(sent) === undefined) return false;
  if (found.kind === 'local') return clients !== undefined && !OPEN.has(found.id);
  return found.kind === 'endpoint' && (clients !== undefined || !isReplaced({ ...sent, ...keys }));
}

/** More than any client sends; each costs a look at every stage. */
const MOST_HEADERS = 256;

/** Two of these, and two parsers can disagree on who asks, for what, or where a body ends. */
const AT_MOST_ONCE = new Set([
  'host',
  'authorization',
  'x-api-key',
  'content-length',
  'transfer-encoding',
  'content-type',
  'origin',
  'sec-fetch-site',
]);

/** A host name or IP literal with an optional port (RFC 9112 3.2); no list, userinfo, blank or path. */
const HOST = /^(?:\[[0-9a-f:.]+(?:%[\w.~-]+)?\]|[\w.~-]+)(?::\d{0,5})?$/i;

/**
 * Throws too_many_headers, ambiguous_header where a header that may come once comes twice, and invalid_host. HTTP/1.1 needs a
 * Host (RFC 9112 3.2); older versions, or an unknown one, do not.
 */
export function checkHead(rawHeaders: readonly string[], httpVersion?: string): void {
  if (rawHeaders.length > 2 * MOST_HEADERS) {
    throw new PrivatemodeError('too_many_headers', `the request has more than ${MOST_HEADERS} headers`);
  }
  const seen = new Set<string>();
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase();
    if (!AT_MOST_ONCE.has(name)) continue;
    if (seen.has(name)) {
      throw new PrivatemodeError('ambiguous_header', `the header ${name} was sent more than once`);
    }
    seen.add(name);
    if (name === 'host' && !HOST.test(rawHeaders[i + 1]!))
      throw invalidHost('not one host name with an optional port');
  }
  if (httpVersion === '1.1' && !seen.has('host')) throw invalidHost('missing');
}

const invalidHost = (what: string): PrivatemodeError =>
  new PrivatemodeError('invalid_host', `the header host is ${what}`);

/**
 * For a listener that knows no keys (--admin-address): throws origin_forbidden for a web page that is not its own,
 * and what checkHead throws. A credential proves nothing there, a page can set one. Only monitors and browsers ask there, so a
 * language that somebody prefers is a browser's too.
 */
export function refuseForeignPage(
  request: Pick<IncomingMessage, 'rawHeaders' | 'headers'>,
  policy: CorsPolicy,
): void {
  checkHead(request.rawHeaders);
  const refusal = foreignPage(request.headers, policy, { languageTells: true });
  if (refusal !== undefined) throw refusal;
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

/**
 * Whether the page that sends a request may spend our key. Programs send neither Origin nor Sec-Fetch-Site and pass, and so
 * does an allowed origin. Of the rest only our own pages pass: Sec-Fetch-Site says `same-origin`, or `none` for the address
 * bar; where a browser does not send it, Origin equals Host. A rebound DNS name makes a foreign page look like our own, so
 * this holds only for localhost, IP literals and names known to be ours. Over plain HTTP under such a name, browsers send
 * neither header with a same-origin GET: there `signs` says what else makes a request a browser's. Returns origin_forbidden, which
 * names the flag, or undefined: the request may go on.
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

/** Names under which this proxy may be addressed by its own pages. `certificate`: PEM, the leaf first. */
export function ownNames(listenAddress: string, certificate?: string | Buffer): string[] {
  const alternative = certificate && new X509Certificate(certificate).subjectAltName;
  const entries = alternative?.split(', ').filter((entry) => entry.startsWith('DNS:')) ?? [];
  return [listenAddress, ...entries.map((entry) => entry.slice('DNS:'.length))].map((name) =>
    name.toLowerCase(),
  );
}

/** For every response, also errors. */
export function corsHeaders(origin: string | undefined, policy: CorsPolicy): Record<string, string> {
  if (policy.allowedOrigins.length === 0) return {};
  if (policy.allowedOrigins.includes('*')) {
    return { 'access-control-allow-origin': '*', 'access-control-expose-headers': EXPOSED };
  }
  // Always, since a cache must not hand the response for one origin to another.
  if (origin === undefined || !isAllowed(origin, policy)) return { vary: 'Origin' };
  return { 'access-control-allow-origin': origin, 'access-control-expose-headers': EXPOSED, vary: 'Origin' };
}

/** What shows that a request without Origin and Sec-Fetch-Site comes from a browser. */
interface BrowserSigns {
  /** The request has a key, and gets nothing without the right one: a rebound page cannot have it. */
  readonly keyDecides?: boolean;
  /** Accept-Language counts: browsers always send one. A page can set it to `*`, which is what Node's fetch sends. */
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
  const wildcard = name.replace(/^[^.]*(?=\.)/, '*'); // of a certificate: it stands for exactly one label
  const names = [name, wildcard, ...ports.map((each) => `${name}:${each}`)];
  return ownNames.some((own) => names.includes(own));
}
