/** Decides from the head of a request whether it is admitted, and what it asks for. */
import type { IncomingMessage } from 'node:http';
import { type Client, requireEndpoint } from '../access/authenticate-client.ts';
import type { LocalId } from '../api/endpoints.ts';
import type { ErrorFormat } from '../api/error-response.ts';
import { matchEndpoint } from '../api/match-endpoint.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { isReplaced, sentKey } from '../pipeline/rewrite-auth.ts';
import { type CorsPolicy, corsHeaders, foreignPage, preflightHeaders, saysBrowser } from './cors.ts';
import type { GatewayDeps } from './deps.ts';

export type Admission =
  | ReturnType<typeof matchEndpoint>
  | { readonly kind: 'preflight'; readonly format: ErrorFormat; readonly headers: Record<string, string> };

/** The proxy's own pages that everybody may read. */
const OPEN: ReadonlySet<LocalId> = new Set<LocalId>(['root', 'healthz', 'readyz']);

/**
 * Checks in this order: an ambiguous head, a preflight, a foreign web page, an unknown client, a client that
 * may not use the endpoint. `client` is set even if its request is refused. `cors`: the CORS headers. Never
 * throws: a fault of the program becomes a refusal.
 */
export function admit(
  deps: Pick<GatewayDeps, 'cors' | 'clients' | 'key' | 'settings' | 'createTranslator'>,
  { method = '', url = '', headers, rawHeaders, httpVersion }: IncomingMessage,
) {
  let decision: Admission;
  let format: ErrorFormat = 'plain';
  let client: Client | undefined;
  let cors: Readonly<Record<string, string>> = {};
  try {
    const policy = deps.cors();
    cors = corsHeaders(headers.origin, policy);
    const found = matchEndpoint(method, url, deps.createTranslator !== undefined, headers.upgrade);
    decision = found;
    format = found.format;
    const { 'x-api-key': apiKeyHeader, authorization } = headers;
    const sent = { authorization, apiKeyHeader: apiKeyHeader as string | undefined };
    const isOpen = found.kind === 'refusal' || (found.kind === 'local' && OPEN.has(found.id));
    const needsClient = deps.clients !== undefined && !isOpen;
    // A foreign page that uses DNS rebinding has no valid key. So a request comes from a program if it has a
    // key that the proxy (--clients) or the service checks. Nobody checks a key that is replaced.
    const { apiKeyFallback: fallback } = deps.settings;
    const leaves =
      found.kind === 'endpoint' && !isReplaced({ ...sent, configuredKey: deps.key.value(), fallback });
    const keyDecides = (needsClient || leaves) && sentKey(sent) !== undefined;
    checkHead(rawHeaders, httpVersion);
    const preflight = preflightHeaders(method, headers, policy);
    const foreign = foreignPage(headers, policy, saysBrowser(headers) && !keyDecides);
    if (preflight !== undefined) decision = { kind: 'preflight', format, headers: preflight };
    else if (foreign !== undefined) throw foreign;
    else if (needsClient) {
      client = deps.clients.authenticate(sent);
      if (found.kind === 'endpoint') requireEndpoint(client, found.endpoint.id);
      else if (found.id === 'count_tokens') requireEndpoint(client, 'messages');
    }
  } catch (thrown) {
    decision = { kind: 'refusal', error: asPrivatemodeError(thrown), format };
  }
  return { decision, client, cors };
}

const MOST_HEADERS = 256;
/** If one of these headers came twice, parsers could disagree on who asks, for what, where the body ends. */
const AT_MOST_ONCE: ReadonlySet<string> = new Set([
  ...['host', 'authorization', 'x-api-key', 'content-length', 'transfer-encoding', 'content-type'],
  ...['origin', 'sec-fetch-site'],
]);
/** A host name or IP literal; a port may follow (RFC 9112 3.2). Matches no list, userinfo, blank, path. */
const HOST = /^(?:\[[0-9a-f:.]+(?:%[\w.~-]+)?\]|[\w.~-]+)(?::\d{0,5})?$/i;

/** Throws too_many_headers, ambiguous_header, invalid_host. Only HTTP/1.1 needs a Host (RFC 9112 3.2). */
export function checkHead(rawHeaders: readonly string[], httpVersion?: string): void {
  if (rawHeaders.length > 2 * MOST_HEADERS)
    throw new PrivatemodeError('too_many_headers', `the request has more than ${MOST_HEADERS} headers`);
  const seen = new Map<string, string>();
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase();
    if (!AT_MOST_ONCE.has(name)) continue;
    if (seen.has(name))
      throw new PrivatemodeError('ambiguous_header', `the header ${name} was sent more than once`);
    seen.set(name, rawHeaders[i + 1]!);
  }
  const host = seen.get('host');
  if (host === undefined ? httpVersion !== '1.1' : HOST.test(host)) return;
  const what = host === undefined ? 'missing' : 'not one host name with an optional port';
  throw new PrivatemodeError('invalid_host', `the header host is ${what}`);
}

/**
 * Refuses foreign web pages at a listener that asks for no key. A request that names a language counts as a
 * browser's. Throws origin_forbidden and what checkHead throws.
 */
export function refuseForeignPage(req: Pick<IncomingMessage, 'rawHeaders' | 'headers'>, policy: CorsPolicy) {
  const { headers } = req;
  checkHead(req.rawHeaders);
  const hasLanguage = (headers['accept-language'] ?? '*') !== '*'; // Node's fetch sends `*`; so may pages
  const refusal = foreignPage(headers, policy, saysBrowser(headers) || hasLanguage);
  if (refusal !== undefined) throw refusal;
}
