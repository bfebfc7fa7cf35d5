/** Decides from the head of a request what it is, before anything is done for it. */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { type Client, requireEndpoint } from '../access/authenticate.ts';
import type { Clients } from '../access/clients.ts';
import type { LocalId, Offered } from '../api/endpoints.ts';
import type { ErrorFormat } from '../api/error-response.ts';
import { type EndpointMatch, type LocalMatch, matchEndpoint, type Refusal } from '../api/match-endpoint.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { type FallbackMode, isReplaced, ownKey } from '../pipeline/rewrite-auth.ts';
import { type CorsPolicy, foreignPage, preflightHeaders } from './cors.ts';

/** The facts that decide for which requests the key matters. */
export interface Keys {
  readonly clients?: Pick<Clients, 'authenticate'> | undefined;
  readonly configuredKey: () => string | undefined;
  readonly fallback: FallbackMode;
}

export type Admission =
  | EndpointMatch
  | LocalMatch
  | Refusal
  | { readonly kind: 'preflight'; readonly format: ErrorFormat; readonly headers: Record<string, string> };

/**
 * `client` is set if a token or a certificate of the request identified it, even if it is refused what it
 * asked for.
 */
interface Admitted {
  readonly admission: Admission;
  readonly client: Client | undefined;
}

/**
 * Checks in this order: an ambiguous head, a preflight, a foreign web page, a request that no table has. With
 * `clients`, it then refuses a stranger, and a client that may not use the endpoint. `offered`: the optional
 * paths that are served.
 */
export function admit(
  req: IncomingMessage,
  policy: CorsPolicy,
  { offered, ...keys }: Keys & { readonly offered: readonly Offered[] },
): Admitted {
  const admission = admissionOf(req, policy, offered, keys);
  if (keys.clients === undefined) return { admission, client: undefined };
  return admitClient(req, admission, keys.clients);
}

/** The proxy's own pages that everybody may read. */
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
  offered: readonly Offered[],
  keys: Keys,
): Admission {
  const found = matchEndpoint(req.method as string, req.url as string, offered, req.headers.upgrade);
  const { format } = found;
  try {
    checkHead(req.rawHeaders, req.httpVersion);
  } catch (thrown) {
    return { kind: 'refusal', error: thrown as PrivatemodeError, format };
  }
  const signs = { keyDecides: keyDecides(found, req.headers, keys) };
  const preflight = preflightHeaders(req.method as string, req.headers, policy);
  if (preflight !== undefined) return { kind: 'preflight', format, headers: preflight };
  const foreign = foreignPage(req.headers, policy, signs);
  if (foreign !== undefined) {
    return { kind: 'refusal', error: foreign, format };
  }
  return found;
}

/**
 * Whether a key in the request decides what the request gets. Such a key is a token of --clients, or a key
 * that the service will judge. A key that the configured key replaces, or that nobody looks at, does not
 * decide: it could be any text.
 */
function keyDecides(found: Admission, headers: IncomingHttpHeaders, keys: Keys): boolean {
  const { clients, configuredKey, fallback } = keys;
  const sent = {
    authorization: headers.authorization,
    apiKeyHeader: headers['x-api-key'] as string | undefined,
  };
  if (ownKey(sent) === undefined) return false;
  if (found.kind === 'local') return clients !== undefined && !OPEN.has(found.id);
  if (found.kind !== 'endpoint') return false;
  return clients !== undefined || !isReplaced({ ...sent, configuredKey: configuredKey(), fallback });
}

/** No client sends more. Each header costs a look at every stage of the request. */
const MOST_HEADERS = 256;

/**
 * If one of these comes twice, two parsers can disagree on who sends the request, what it asks for, or where
 * its body ends.
 */
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
 * Throws too_many_headers; ambiguous_header if a header that may come once comes twice; and invalid_host.
 * HTTP/1.1 needs a Host (RFC 9112 3.2). An older version, or an unknown one, does not.
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
 * For a listener that knows no keys (--admin-address, --metrics-address). Throws origin_forbidden for a web
 * page that is not its own, and what checkHead throws. A credential proves nothing to this listener, because
 * a page can set one. Only monitors and browsers use it, so an Accept-Language that states a preference shows
 * a browser, too.
 */
export function refuseForeignPage(
  request: Pick<IncomingMessage, 'rawHeaders' | 'headers'>,
  policy: CorsPolicy,
): void {
  checkHead(request.rawHeaders);
  const refusal = foreignPage(request.headers, policy, { languageTells: true });
  if (refusal !== undefined) throw refusal;
}
