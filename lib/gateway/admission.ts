/** What a request is, decided from its head before anything is done for it. */
import type { IncomingMessage } from 'node:http';
import type { ErrorFormat } from '../api/error-format.ts';
import { type EndpointMatch, type LocalMatch, matchEndpoint } from '../api/match-endpoint.ts';
import { PrivatemodeError } from '../errors.ts';
import { headerPairs } from '../pipeline/rewrite-auth.ts';
import { type CorsPolicy, decideOrigin, preflightHeaders } from './cors.ts';

export type Admission =
  | EndpointMatch
  | LocalMatch
  | { readonly kind: 'preflight'; readonly headers: Readonly<Record<string, string>> }
  | {
      readonly kind: 'refused';
      readonly error: PrivatemodeError;
      readonly format: ErrorFormat;
      /** With method_not_allowed: the value of `Allow`. */
      readonly allow?: readonly string[] | undefined;
    };

/** In this order: an ambiguous head, a preflight, a foreign web page, and what no table has. `headers` go with every response. */
export function admit(
  req: IncomingMessage,
  policy: CorsPolicy,
): { readonly admission: Admission; readonly headers: Readonly<Record<string, string>> } {
  const origin = decideOrigin(req.headers, policy);
  return { admission: admissionOf(req, policy, origin.refusal), headers: origin.headers };
}

function admissionOf(req: IncomingMessage, policy: CorsPolicy, foreign: string | undefined): Admission {
  const found = matchEndpoint(req.method as string, req.url as string);
  const format = found.kind === 'endpoint' ? found.endpoint.errorFormat : found.format;
  try {
    checkHead(req.rawHeaders, req.httpVersion);
  } catch (thrown) {
    return { kind: 'refused', error: thrown as PrivatemodeError, format };
  }
  const preflight = preflightHeaders(req.method as string, req.headers, policy);
  if (preflight !== undefined) return { kind: 'preflight', headers: preflight };
  if (foreign !== undefined) {
    return { kind: 'refused', error: new PrivatemodeError('origin_forbidden', foreign), format };
  }
  if (found.kind !== 'refusal') return found;
  return {
    kind: 'refused',
    error: new PrivatemodeError(found.code, found.message),
    format,
    allow: found.allow,
  };
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
  for (const [name, value] of headerPairs(rawHeaders)) {
    if (!AT_MOST_ONCE.has(name)) continue;
    if (seen.has(name)) {
      throw new PrivatemodeError('ambiguous_header', `the header ${name} was sent more than once`);
    }
    seen.add(name);
    if (name === 'host' && !HOST.test(value)) throw invalidHost('not one host name with an optional port');
  }
  if (httpVersion === '1.1' && !seen.has('host')) throw invalidHost('missing');
}

const invalidHost = (what: string): PrivatemodeError =>
  new PrivatemodeError('invalid_host', `the header host is ${what}`);

/**
 * For a listener that knows no keys (--metrics-address): throws origin_forbidden for a web page that is not its own,
 * and what checkHead throws. A credential proves nothing there, a page can set one.
 */
export function refuseForeignPage(
  request: Pick<IncomingMessage, 'rawHeaders' | 'headers'>,
  policy: CorsPolicy,
): void {
  checkHead(request.rawHeaders);
  const keyless = { ...request.headers, authorization: undefined, 'x-api-key': undefined };
  const { refusal } = decideOrigin(keyless, policy);
  if (refusal !== undefined) throw new PrivatemodeError('origin_forbidden', refusal);
}
