/** Finds the row of the endpoint table for a request, or says why there is none. Reads bearer tokens. */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { ENDPOINTS, type Endpoint, LOCAL, type LocalId, served } from './endpoints.ts';
import type { ErrorFormat } from './error-response.ts';

type Match<Kind> = { readonly kind: Kind; readonly format: ErrorFormat };

/**
 * `target` is sent upstream. It has the path of the request, or the path to which the request is translated.
 * The allowed parameters of the query follow the path, as received.
 */
export type EndpointMatch = Match<'endpoint'> & { readonly endpoint: Endpoint; readonly target: string };
type LocalMatch = Match<'local'> & { readonly id: LocalId };
/** `allow`: the methods for the header `Allow`. Only the error method_not_allowed has this member. */
export type Refusal = Match<'refusal'> & {
  readonly error: PrivatemodeError;
  readonly allow?: readonly string[];
};

/**
 * Decides what a request line means. `rawTarget`: the target as received. `responsesApi`: whether the
 * Responses API is served. `upgrade`: the header Upgrade. OPTIONS counts as a wrong method, because
 * lib/gateway/admission.ts answers preflights.
 */
export function matchEndpoint(
  method: string,
  rawTarget: string,
  responsesApi = false,
  upgrade?: string,
): EndpointMatch | LocalMatch | Refusal {
  const read = readTarget(rawTarget);
  if (typeof read === 'string') return refuse('plain', 'invalid_path', read);
  const { row, path, query } = read;
  const format = formatOf(path);
  const hasMethod = row?.methods.includes(method);
  if (row?.id === 'responses' && !responsesApi)
    return refuse(format, 'not_supported', 'the service has no Responses API');
  if (row?.id === 'responses' && !hasMethod && upgrade?.toLowerCase() === 'websocket')
    return refuse(format, 'websocket_unsupported', 'responses do not come over a WebSocket here');
  // The proxy stores no responses, so a method for stored responses counts as an unknown path.
  if (row === undefined || (row.id === 'responses' && !hasMethod)) {
    const remedy = `Use one of these: ${served(responsesApi).join(', ')}.`;
    return refuse(format, 'unknown_path', 'there is no such endpoint here', remedy);
  }
  if (!hasMethod) {
    const message = `this path takes ${row.methods.join(', ')} only, not ${method}`;
    return { ...refuse(format, 'method_not_allowed', message), allow: row.methods };
  }
  if (!('codec' in row)) return { kind: 'local', id: row.id, format };
  const target = (row.translatedTo ?? path) + filterQuery(query, row.query);
  return { kind: 'endpoint', endpoint: row, format, target };
}

const refuse = (format: ErrorFormat, code: ErrorCode, message: string, remedy?: string): Refusal => ({
  kind: 'refusal',
  error: new PrivatemodeError(code, message, { remedy }),
  format,
});

/** The error format of a path. Clients of the Messages API understand errors in their own format only. */
function formatOf(path: string): ErrorFormat {
  if (/^\/v1\/messages(?:\/|$)/.test(path)) return 'anthropic';
  if (/^\/v1\/responses(?:\/|$)/.test(path)) return 'responses';
  return /^\/(?:v1(?:\/|$)|unstructured\/)/.test(path) ? 'openai' : 'plain';
}

/** What makes a path ambiguous: a plain or escaped backslash, a lone `%`, an escaped control character. */
const ODD_PATH = /\\|%5c|%(?![0-9a-f]{2})|%[01][0-9a-f]|%7f/i;

/**
 * Reads a request target. Returns a message instead if a later parser could read the target otherwise:
 * nothing may be sealed for one path and delivered to another. The message quotes nothing of the target.
 * `path` has no doubled slashes, and begins with `/v1` at most once: `//v1/x` and `/v1/v1/x` mean `/v1/x`. If
 * a `row` covers the path, the path is written as in the row. `query` is as received, with its `?`, or empty.
 */
export function readTarget(raw: string) {
  if (!raw.startsWith('/'))
    return 'the request target is not a path; this proxy goes into the base URL of a client, not into its proxy settings';
  const sent = raw.split('?', 1)[0] as string;
  const segments = sent.replace(/%2e/gi, '.').split(/\/|%2f/i);
  if (/[^\x21-\x7e]|#/.test(raw) || ODD_PATH.test(sent) || segments.some((each) => /^\.\.?$/.test(each)))
    return 'the request target could be read in two ways';
  const path = sent.replace(/\/{2,}/g, '/').replace(/^(?:\/v1)+(?=\/v1(?:\/|$))/, '');
  return { ...meant(path), query: raw.slice(sent.length) };
}

const ROWS = [...ENDPOINTS, ...LOCAL];

/**
 * Finds the row that a path means. A path may lack `/v1`, and may end in a slash, because users write base
 * URLs in all ways. A path below `/*` belongs to another API, so every byte of the path is kept.
 */
function meant(path: string) {
  const trimmed = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  for (const row of ROWS) {
    const written = row.path.endsWith('/*') ? path : trimmed;
    if (covers(row.path, written)) return { row, path: written };
    if (covers(row.path, `/v1${written}`)) return { row, path: `/v1${written}` };
  }
  return { row: undefined, path };
}

function covers(row: string, path: string): boolean {
  if (row.endsWith('/*')) return path.startsWith(row.slice(0, -1));
  if (row.endsWith('/{id}')) return path.startsWith(row.slice(0, -4)) && path.length > row.length - 4;
  return path === row;
}

/**
 * Returns the allowed parameters of a query as received, behind a question mark. If no parameter is allowed,
 * returns an empty text. Escaped names are not recognised. A parameter with `;` is dropped: some parsers
 * begin another parameter there.
 */
function filterQuery(query: string, allowed: readonly string[]): string {
  const isKept = (parameter: string): boolean =>
    allowed.includes(parameter.split('=', 1)[0] as string) && !parameter.includes(';');
  const kept = query.slice(1).split('&').filter(isKept);
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

/** The token of a bearer header: two words, the first of which is `bearer` in any case (RFC 9110 11.1). */
export const bearerToken = (authorization = ''): string | undefined =>
  /^bearer ([^ ]+)$/i.exec(authorization)?.[1];
