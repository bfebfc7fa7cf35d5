/** Finds the row of the endpoint table that a request line means, or says why there is none. */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { ENDPOINTS, type Endpoint, LOCAL, type LocalId, type Offered, served } from './endpoints.ts';
import type { ErrorFormat } from './error-response.ts';

interface Match<Kind> {
  readonly kind: Kind;
  /** The error format of the path. */
  readonly format: ErrorFormat;
}

export interface EndpointMatch extends Match<'endpoint'> {
  readonly endpoint: Endpoint;
  /**
   * The target to send upstream: the canonical path, or that of the API to which the request is translated,
   * and the allowed parameters of the query, exactly as received.
   */
  readonly target: string;
}

export type LocalMatch = Match<'local'> & { readonly id: LocalId };

export interface Refusal extends Match<'refusal'> {
  readonly error: PrivatemodeError;
  /** With method_not_allowed: the value of `Allow`. */
  readonly allow?: readonly string[];
}

/**
 * Decides what a request line means. `rawTarget`: the target exactly as it came over the wire. `offered`: the
 * optional rows that are served. `upgrade`: the header of that name. An OPTIONS is a wrong method here: who
 * answers preflights looks at them before (lib/gateway/admission.ts).
 */
export function matchEndpoint(
  method: string,
  rawTarget: string,
  offered: readonly Offered[] = [],
  upgrade?: string,
): EndpointMatch | LocalMatch | Refusal {
  const parsed = parseTarget(rawTarget);
  if (typeof parsed === 'string') return refuse('plain', 'invalid_path', parsed);
  const found = meant(parsed.path);
  const format = formatOf(found?.path ?? parsed.path);
  const unknown = (): Refusal => {
    const remedy = `Use one of these: ${served(offered).join(', ')}.`;
    return refuse(format, 'unknown_path', 'there is no such endpoint here', remedy);
  };
  if (found === undefined) return unknown();
  const { row, path } = found;
  if (row.optional !== undefined && !offered.includes(row.optional)) {
    if (row.optional === 'verification') return unknown();
    return refuse(format, 'not_supported', 'the service has no Responses API');
  }
  if (!row.methods.includes(method)) {
    if (row.id === 'responses' && upgrade?.toLowerCase() === 'websocket')
      return refuse(format, 'websocket_unsupported', 'responses do not come over a WebSocket here');
    if (row.id === 'responses') return unknown(); // nothing is stored that could be read or deleted
    const message = `this path takes ${row.methods.join(', ')} only, not ${method}`;
    return { ...refuse(format, 'method_not_allowed', message), allow: row.methods };
  }
  if (!('codec' in row)) return { kind: 'local', id: row.id, format };
  const target = (row.translatedTo ?? path) + filterQuery(parsed.query, row.query);
  return { kind: 'endpoint', endpoint: row, format, target };
}

const refuse = (format: ErrorFormat, code: ErrorCode, message: string, remedy?: string): Refusal => ({
  kind: 'refusal',
  error: new PrivatemodeError(code, message, { remedy }),
  format,
});

const ROWS = [...ENDPOINTS, ...LOCAL];

/**
 * The row that a path means, and the path as that row would write it: with `/v1`, because base URLs are
 * pasted with and without it, and without a slash at the end. Below `/*` the path belongs to another API, so
 * every byte of it stays.
 */
export function meant(path: string) {
  const trimmed = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  for (const row of ROWS) {
    const written = row.path.endsWith('/*') ? path : trimmed;
    if (covers(row.path, written)) return { row, path: written };
    if (covers(row.path, `/v1${written}`)) return { row, path: `/v1${written}` };
  }
  return undefined;
}

function covers(row: string, path: string): boolean {
  if (row.endsWith('/*')) return path.startsWith(row.slice(0, -1));
  if (row.endsWith('/{id}')) return path.startsWith(row.slice(0, -4)) && path.length > row.length - 4;
  return path === row;
}

/** Clients of the message style understand errors only in their own format. */
function formatOf(path: string): ErrorFormat {
  if (/^\/v1\/messages(?:\/|$)/.test(path)) return 'anthropic';
  if (/^\/v1\/responses(?:\/|$)/.test(path)) return 'responses';
  return /^\/(?:v1(?:\/|$)|unstructured\/)/.test(path) ? 'openai' : 'plain';
}

/**
 * Reads the target of a request line exactly as it came over the wire, or returns a message that refuses it.
 * It refuses what a later parser could read differently, so that nothing is sealed for one path and delivered
 * to another. The message quotes nothing of the target, which may hold anything.
 * `path` has no doubled slashes, and begins with `/v1` at most once: `//v1/x` and `/v1/v1/x` mean `/v1/x`.
 * `query` is empty, or begins with its question mark and is exactly as received.
 */
export function parseTarget(raw: string): { readonly path: string; readonly query: string } | string {
  if (!raw.startsWith('/'))
    return 'the request target is not a path; this proxy goes into the base URL of a client, not into its proxy settings';
  const path = raw.split('?', 1)[0] as string;
  const segments = path.replace(/%2e/gi, '.').split(/\/|%2f/i);
  if (/[^\x21-\x7e]|#/.test(raw) || ODD_PATH.test(path) || segments.some((each) => /^\.\.?$/.test(each)))
    return 'the request target could be read in two ways';
  const canonical = path.replace(/\/{2,}/g, '/').replace(/^(?:\/v1)+(?=\/v1(?:\/|$))/, '');
  return { path: canonical, query: raw.slice(path.length) };
}

/** A backslash, an escaped one, a percent sign that starts no escape, and escaped control characters. */
const ODD_PATH = /\\|%5c|%(?![0-9a-f]{2})|%[01][0-9a-f]|%7f/i;

/**
 * The parameters of a query whose names are allowed, each as received, with the question mark; or nothing. An
 * escaped name is not recognised. A parameter with `;`, where some parsers begin another one, is dropped.
 */
function filterQuery(query: string, allowed: readonly string[]): string {
  const isKept = (parameter: string): boolean =>
    allowed.includes(parameter.split('=', 1)[0] as string) && !parameter.includes(';');
  const kept = query.slice(1).split('&').filter(isKept);
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}
