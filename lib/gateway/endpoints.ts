import type { ErrorCode } from '../errors.ts';
import type { Dialect } from './dialects.ts';
import { filterQuery, parseTarget } from './request-target.ts';

/** Key of a list of plain members (inference.md 5.1; the lists themselves live in lib/pipeline). */
export type PlainList = 'C' | 'M' | 'E' | 'T' | 'R' | 'MR' | 'TR';

export type EndpointId =
  | 'chat'
  | 'completions'
  | 'messages'
  | 'embeddings'
  | 'transcription'
  | 'unstructured'
  | 'models'
  | 'model';

export interface Endpoint {
  readonly id: EndpointId;
  /** Without HEAD, which is served wherever GET is. */
  readonly methods: readonly string[];
  /** Exact; `/*` at the end: everything below; `/{id}` at the end: everything below that is not empty. */
  readonly path: string;
  readonly dialect: Dialect;
  /** How the request body is sealed; `none` sends no body at all. */
  readonly codec: 'json' | 'multipart' | 'raw' | 'none';
  /** Members that stay plain; undefined: none does. */
  readonly requestPlain: PlainList | undefined;
  readonly responsePlain: PlainList | undefined;
  /** Whether a cache salt is put into the body and a shard key into the headers (inference.md 8). */
  readonly salted: boolean;
  /** What ends a stream well (inference.md 6.2). */
  readonly terminal: '[DONE]' | 'message_stop' | undefined;
  /** False: nothing is sealed or opened, headers only. */
  readonly encrypted: boolean;
  /** Query parameters that the remote gets; all others are dropped. */
  readonly query: readonly string[];
  /** `gen_ai.operation.name` of the OpenTelemetry conventions. */
  readonly operation: string;
}

/** What is forwarded, and how. A path that is not here is never forwarded (inference.md 1 and 5.1). */
export const ENDPOINTS: readonly Endpoint[] = [
  {
    id: 'chat',
    methods: ['POST'],
    path: '/v1/chat/completions',
    dialect: 'openai',
    codec: 'json',
    requestPlain: 'C',
    responsePlain: 'R',
    salted: true,
    terminal: '[DONE]',
    encrypted: true,
    query: [],
    operation: 'chat',
  },
  {
    id: 'completions',
    methods: ['POST'],
    path: '/v1/completions',
    dialect: 'openai',
    codec: 'json',
    requestPlain: 'C',
    responsePlain: 'R',
    salted: true,
    terminal: '[DONE]',
    encrypted: true,
    query: [],
    operation: 'text_completion',
  },
  {
    id: 'messages',
    methods: ['POST'],
    path: '/v1/messages',
    dialect: 'anthropic',
    codec: 'json',
    requestPlain: 'M',
    responsePlain: 'MR',
    salted: true,
    terminal: 'message_stop',
    encrypted: true,
    query: ['beta'],
    operation: 'chat',
  },
  {
    id: 'embeddings',
    methods: ['POST'],
    path: '/v1/embeddings',
    dialect: 'openai',
    codec: 'json',
    requestPlain: 'E',
    responsePlain: 'R',
    salted: false,
    terminal: undefined,
    encrypted: true,
    query: [],
    operation: 'embeddings',
  },
  {
    id: 'transcription',
    methods: ['POST'],
    path: '/v1/audio/transcriptions',
    dialect: 'openai',
    codec: 'multipart',
    requestPlain: 'T',
    responsePlain: 'TR',
    salted: false,
    terminal: '[DONE]',
    encrypted: true,
    query: [],
    operation: 'transcription',
  },
  {
    id: 'unstructured',
    methods: ['POST'],
    path: '/unstructured/*',
    dialect: 'openai',
    codec: 'raw',
    requestPlain: undefined,
    responsePlain: undefined,
    salted: false,
    terminal: undefined,
    encrypted: true,
    query: [],
    operation: 'unstructured',
  },
  {
    id: 'models',
    methods: ['GET'],
    path: '/v1/models',
    dialect: 'openai',
    codec: 'none',
    requestPlain: undefined,
    responsePlain: undefined,
    salted: false,
    terminal: undefined,
    encrypted: false,
    query: ['limit', 'after', 'after_id', 'before_id', 'order'],
    operation: 'list_models',
  },
  {
    id: 'model',
    methods: ['GET'],
    path: '/v1/models/{id}',
    dialect: 'openai',
    codec: 'none',
    requestPlain: undefined,
    responsePlain: undefined,
    salted: false,
    terminal: undefined,
    encrypted: false,
    query: [],
    operation: 'get_model',
  },
];

/** Answered here, without the remote. `/api/hello` is a pre-connect probe of coding agents. */
const LOCAL: Readonly<Record<string, LocalAnswer['id']>> = {
  '/': 'root',
  '/api/hello': 'hello',
  '/healthz': 'healthz',
  '/readyz': 'readyz',
};

/** Paths that clients try and that get an answer of their own. */
const UNSUPPORTED: readonly { readonly path: string; readonly code: ErrorCode; readonly words: string }[] = [
  {
    path: '/v1/responses',
    code: 'not_supported',
    words: 'the responses API is not supported by the service; use /v1/chat/completions',
  },
  {
    path: '/v1/responses/*',
    code: 'not_supported',
    words: 'the responses API is not supported by the service; use /v1/chat/completions',
  },
  {
    path: '/v1/messages/count_tokens',
    code: 'unknown_path',
    words: 'the service does not count tokens; estimate them in the client',
  },
];

export interface Match {
  readonly kind: 'endpoint';
  readonly endpoint: Endpoint;
  /** What to send upstream: the canonical path and the allowed parameters of the query, exactly as received. */
  readonly target: string;
  /** Names of the query parameters that were dropped, for the log; their values are nowhere. */
  readonly dropped: readonly string[];
}

export interface LocalAnswer {
  readonly kind: 'local';
  readonly id: 'root' | 'hello' | 'healthz' | 'readyz';
}

export interface Refusal {
  readonly kind: 'refusal';
  readonly code: ErrorCode;
  readonly words: string;
  readonly dialect: Dialect;
  /** With method_not_allowed: the value of `Allow`. */
  readonly allow: readonly string[] | undefined;
}

/**
 * Decides what a request line means; the target exactly as it came over the wire.
 * Preflights are answered before (cors.ts); an OPTIONS that arrives here is a wrong method.
 */
export function matchEndpoint(method: string, rawTarget: string): Match | LocalAnswer | Refusal {
  const parsed = parseTarget(rawTarget);
  if (typeof parsed === 'string') return refuse('invalid_path', parsed, 'plain');
  const { path, query } = parsed;

  const local = Object.hasOwn(LOCAL, path) ? LOCAL[path] : undefined;
  if (local !== undefined)
    return allows(['GET'], method) ? { kind: 'local', id: local } : wrongMethod(['GET'], path);

  const unsupported = UNSUPPORTED.find((row) => covers(row.path, path));
  if (unsupported !== undefined) return refuse(unsupported.code, unsupported.words, dialectOf(path));

  const endpoint = ENDPOINTS.find((row) => covers(row.path, path));
  if (endpoint === undefined) return unknownPath(path);
  if (!allows(endpoint.methods, method)) return wrongMethod(endpoint.methods, path);
  const { kept, dropped } = filterQuery(query, endpoint.query);
  return { kind: 'endpoint', endpoint, target: path + kept, dropped };
}

/** A segment that a log may show: a plain word or a version, nothing that could be an id, a key or a text. */
const PLAIN_SEGMENT = /^(?:[a-z]{1,16}|v[0-9]{1,2})$/;

/**
 * The path of a request as a log may show it: the row of a table that covers it, else its first segment where that is a plain word
 * (`/openai/*`), else `unknown`. Never the query.
 */
export function pathForLog(rawTarget: string): string {
  const parsed = parseTarget(rawTarget);
  if (typeof parsed === 'string') return 'unknown';
  const { path } = parsed;
  const rows = [
    ...Object.keys(LOCAL),
    ...UNSUPPORTED.map((row) => row.path),
    ...ENDPOINTS.map((row) => row.path),
  ];
  const known = rows.find((row) => covers(row, path));
  if (known !== undefined) return known;
  const [, first = '', ...rest] = path.split('/');
  if (!PLAIN_SEGMENT.test(first)) return 'unknown';
  return rest.length === 0 ? `/${first}` : `/${first}/*`;
}

function covers(row: string, path: string): boolean {
  if (row.endsWith('/*')) return path.startsWith(row.slice(0, -1));
  if (row.endsWith('/{id}')) return path.startsWith(row.slice(0, -4)) && path.length > row.length - 4;
  return path === row;
}

const withHead = (methods: readonly string[]): readonly string[] =>
  methods.includes('GET') ? [...methods, 'HEAD'] : methods;

const allows = (methods: readonly string[], method: string): boolean => withHead(methods).includes(method);

/** Clients of the message style understand errors only in their own form. */
const dialectOf = (path: string): Dialect =>
  path === '/v1/messages' || path.startsWith('/v1/messages/')
    ? 'anthropic'
    : path === '/v1' || path.startsWith('/v1/') || path.startsWith('/unstructured/')
      ? 'openai'
      : 'plain';

function refuse(code: ErrorCode, words: string, dialect: Dialect, allow?: readonly string[]): Refusal {
  return { kind: 'refusal', code, words, dialect, allow };
}

function wrongMethod(methods: readonly string[], path: string): Refusal {
  const allow = withHead(methods);
  return refuse('method_not_allowed', `this path takes ${allow.join(', ')} only`, dialectOf(path), allow);
}

function unknownPath(path: string): Refusal {
  const meant = ENDPOINTS.find((row) => row.path.startsWith('/v1/') && covers(row.path, `/v1${path}`));
  if (meant === undefined) return refuse('unknown_path', 'there is no such endpoint here', dialectOf(path));
  const words =
    meant.dialect === 'anthropic'
      ? `the path lacks /v1: it is ${meant.path}, with a base URL like http://localhost:8080`
      : `the path lacks /v1: set the base URL of the client to one like http://localhost:8080/v1`;
  return refuse('unknown_path', words, meant.dialect);
}
