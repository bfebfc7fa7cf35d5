/** Finds the row of the endpoint table that a request line means, or says why there is none. */
import { type ErrorCode, PrivatemodeError } from '../errors.ts';
import { nearest } from '../text.ts';
import { ENDPOINTS, type Endpoint, LOCAL, type LocalId, type Offered, UNSUPPORTED } from './endpoints.ts';
import type { ErrorFormat } from './error-response.ts';

export interface EndpointMatch {
  readonly kind: 'endpoint';
  readonly endpoint: Endpoint;
  /** The error format of the endpoint. */
  readonly format: ErrorFormat;
  /**
   * The target to send upstream: the canonical path, or that of the API to which the request is translated,
   * and the allowed parameters of the query, exactly as received.
   */
  readonly target: string;
  /** Names of the query parameters that were dropped, for the log. Their values are kept nowhere. */
  readonly dropped: readonly string[];
}

export interface LocalMatch {
  readonly kind: 'local';
  readonly id: LocalId;
  readonly format: ErrorFormat;
}

export interface Refusal {
  readonly kind: 'refusal';
  readonly error: PrivatemodeError;
  readonly format: ErrorFormat;
  /** With method_not_allowed: the value of `Allow`. */
  readonly allow?: readonly string[];
}

/**
 * Decides what a request line means. `rawTarget`: the target exactly as it came over the wire. `offered`: the
 * optional rows that are served. `upgrade`: the header of that name; it only serves to tell a client that
 * tries a WebSocket first that there is none. `baseUrl`: writes the base URL with this path for a message.
 *
 * Preflights are answered earlier (lib/gateway/admission.ts); an OPTIONS that arrives here is a wrong method.
 */
export function matchEndpoint(
  method: string,
  rawTarget: string,
  offered: readonly Offered[] = [],
  upgrade?: string,
  baseUrl = atProxy,
): EndpointMatch | LocalMatch | Refusal {
  const parsed = parseTarget(rawTarget);
  if (typeof parsed === 'string') return refuse('invalid_path', parsed, 'plain');
  const { path, query } = parsed;

  const found = meant(path);
  if (found === undefined) return refuse('unknown_path', noSuchEndpoint(path, baseUrl), formatOf(path));
  const { row, path: canonical } = found;
  if ('optional' in row && row.optional !== undefined && !offered.includes(row.id as Offered))
    return refuse('unknown_path', row.optional, formatOf(path));
  const format = formatOf(canonical);
  if ('unlessOffered' in row && row.unlessOffered !== undefined && !offered.includes('responses'))
    return refuse('not_supported', row.unlessOffered, format);
  const allow = 'methods' in row ? withHead(row.methods) : [];
  if (!('methods' in row) || !allow.includes(method)) {
    if ('otherMethods' in row && row.otherMethods !== undefined) {
      return upgrade?.toLowerCase() === 'websocket'
        ? refuse('websocket_unsupported', 'responses do not come over a WebSocket here', format)
        : refuse('unknown_path', row.otherMethods, format);
    }
    return {
      ...refuse('method_not_allowed', `this path takes ${allow.join(', ')} only, not ${method}`, format),
      allow,
    };
  }
  if (!('codec' in row)) return { kind: 'local', id: row.id, format };
  const { kept, dropped } = filterQuery(query, row.query);
  return {
    kind: 'endpoint',
    endpoint: row,
    format: row.errorFormat,
    target: (row.translatedTo ?? canonical) + kept,
    dropped,
  };
}

const ROWS = [...LOCAL, ...ENDPOINTS, ...UNSUPPORTED];

/**
 * The row that a path means, and the path as that row would write it: with `/v1`, and without a slash at the
 * end. Below `/*` the path belongs to another API, so every byte of it stays.
 */
export function meant(
  path: string,
): { readonly row: (typeof ROWS)[number]; readonly path: string } | undefined {
  const trimmed = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  for (const row of ROWS) {
    const written = row.path.endsWith('/*') ? path : trimmed;
    if (covers(row.path, written)) return { row, path: written };
    if (row.versionless && covers(row.path, `/v1${written}`)) return { row, path: `/v1${written}` };
  }
  return undefined;
}

function covers(row: string, path: string): boolean {
  if (row.endsWith('/*')) return path.startsWith(row.slice(0, -1));
  if (row.endsWith('/{id}')) return path.startsWith(row.slice(0, -4)) && path.length > row.length - 4;
  return path === row;
}

const withHead = (methods: readonly string[]): readonly string[] =>
  methods.includes('GET') ? [...methods, 'HEAD'] : methods;

/**
 * The error format of a canonical path. Clients of the message style understand errors only in their own
 * format.
 */
function formatOf(path: string): ErrorFormat {
  if (/^\/v1\/messages(?:\/|$)/.test(path)) return 'anthropic';
  if (/^\/v1\/responses(?:\/|$)/.test(path)) return 'responses';
  return /^\/(?:v1(?:\/|$)|unstructured\/)/.test(path) ? 'openai' : 'plain';
}

const refuse = (code: ErrorCode, message: string, format: ErrorFormat): Refusal => ({
  kind: 'refusal',
  error: new PrivatemodeError(code, message),
  format,
});

/**
 * Paths of rows without a pattern. Most requests have one of these, exactly as its row writes it: parseTarget
 * has nothing to check in it.
 */
const WHOLE_PATHS: ReadonlySet<string> = new Set(
  ROWS.map(({ path }) => path as string).filter((path) => !/[*{]/.test(path)),
);

const LONGEST_PATH = Math.max(...[...WHOLE_PATHS].map(({ length }) => length));

/**
 * The beginning of a path that a message may show: a version and a plain word, nothing that could be an id, a
 * key or a text.
 */
const SHOWN = /^(?:\/v[0-9]{1,2})?(?:\/[a-z]{1,16})?(?=\/|$)/i;

const atProxy = (path: '' | '/v1'): string =>
  `http://HOST:PORT${path || ', without a path'}, with the host and port of this proxy`;

/**
 * The message for an unknown path. It names the path as far as it may be shown. If an endpoint follows a
 * wrong beginning, it also names the base URL that the client has to have.
 */
function noSuchEndpoint(path: string, baseUrl: typeof atProxy): string {
  const asked = path.replace(/\/$/, '');
  // Each beginning costs a look at all that follows it, and only the last ones can leave a path of ours.
  const tail = asked.slice(-LONGEST_PATH);
  const starts = [...tail.matchAll(/\//g)].map(({ index }) => asked.length - tail.length + index);
  const named = (start: number): string =>
    asked
      .slice(start)
      .toLowerCase()
      .replace(/^(?!\/v1\/)/, '/v1');
  const at = starts.find((start) => WHOLE_PATHS.has(named(start))) ?? asked.length;
  const front = asked.slice(0, at);
  const [shown = ''] = SHOWN.exec(front) ?? [];
  const what = `there is no such endpoint here: ${shown}${front === shown ? '' : '/*'}${asked.slice(at)}`;
  const near = nearest(named(0), [...WHOLE_PATHS], 2);
  // Two letters from a name of ours, and of plain characters: that is no secret.
  if (near !== undefined && near !== named(0) && /^[\w/-]+$/.test(asked))
    return `there is no endpoint ${asked} here; the nearest is ${near}`;
  if (at === asked.length) return what;
  const base = baseUrl(formatOf(named(at)) === 'anthropic' ? '' : '/v1');
  return `${what}. The base URL of the client has to be ${base}`;
}

/**
 * Reads the target of a request line exactly as it came over the wire, or returns a message that says what is
 * wrong with it. It refuses anything that a later parser could read differently, so that nothing is sealed
 * for one path and delivered to another. The message quotes nothing of the target, which may hold anything.
 * `path` has no doubled slashes, and holds `/v1` exactly once. `query` is empty, or begins with its question
 * mark and is exactly as received.
 */
export function parseTarget(raw: string): { readonly path: string; readonly query: string } | string {
  if (WHOLE_PATHS.has(raw)) return { path: raw, query: '' };
  if (!raw.startsWith('/'))
    return 'the request target is not a path; this proxy goes into the base URL of a client, not into its proxy settings';
  if (/[^\x21-\x7e]/.test(raw))
    return 'the request target contains blanks, control characters or non-ASCII text';
  if (raw.includes('#')) return 'the request target contains a fragment';
  const path = raw.split('?', 1)[0] as string;
  if (path.includes('\\') || /%5c/i.test(path)) return 'the path contains a backslash';
  if (/%(?![0-9a-f]{2})/i.test(path)) return 'the path contains a percent sign that starts no escape';
  if (/%[01][0-9a-f]|%7f/i.test(path)) return 'the path contains an escaped control character';
  const segments = path.replace(/%2e/gi, '.').split(/\/|%2f/i);
  if (segments.includes('.') || segments.includes('..')) return 'the path contains dot segments';
  return { path: canonical(path), query: raw.slice(path.length) };
}

/**
 * Base URLs are pasted with and without `/v1` and with a trailing slash: `//v1/x` and `/v1/v1/x` mean
 * `/v1/x`.
 */
const canonical = (path: string): string =>
  path.replace(/\/{2,}/g, '/').replace(/^(?:\/v1)+(?=\/v1(?:\/|$))/, '');

/** Names of parameters that the log may show. Any other text in their place may be content. */
const PARAMETER_NAME = /^[\w.-]{1,40}(?==)/;

/**
 * Keeps the parameters of a query whose names are allowed, each as received. Names must be written plainly:
 * an escaped name is not recognised. A parameter with `;`, where some parsers begin another parameter, is not
 * kept. `kept` has its question mark, or is empty. `dropped` holds the names of the others, `?` for a name
 * that the log may not show.
 */
function filterQuery(
  query: string,
  allowed: readonly string[],
): { readonly kept: string; readonly dropped: readonly string[] } {
  const parameters = query.slice(1).split('&').filter(Boolean);
  const isKept = (parameter: string): boolean =>
    allowed.includes(parameter.split('=', 1)[0] as string) && !parameter.includes(';');
  const kept = parameters.filter(isKept).join('&');
  const others = parameters.filter((parameter) => !isKept(parameter));
  const dropped = others.map((parameter) => PARAMETER_NAME.exec(parameter)?.[0] ?? '?');
  return { kept: kept === '' ? '' : `?${kept}`, dropped };
}
