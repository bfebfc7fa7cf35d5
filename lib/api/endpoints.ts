import type { ErrorCode } from '../errors.ts';
import type { ErrorFormat } from './error-format.ts';
import { filterQuery, parseTarget } from './request-target.ts';

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
  /** Served without its `/v1` too: base URLs are pasted with and without it. */
  readonly versionless: boolean;
  readonly errorFormat: ErrorFormat;
  /** How the request body is sealed; `none` sends no body at all. */
  readonly codec: 'json' | 'multipart' | 'raw' | 'none';
  /** Members (of forms: value fields) that are not encrypted; names match exactly (docs/protocol/inference.md 5.1). */
  readonly requestPlain: ReadonlySet<string>;
  readonly responsePlain: ReadonlySet<string>;
  /** Whether a cache salt is put into the body and a shard key into the headers (docs/protocol/inference.md 8). */
  readonly salted: boolean;
  /** What ends a stream well (docs/protocol/inference.md 6.2). */
  readonly terminal: '[DONE]' | 'message_stop' | undefined;
  /** False: nothing is sealed or opened, headers only. */
  readonly encrypted: boolean;
  /** Query parameters that the remote gets; all others are dropped. */
  readonly query: readonly string[];
  /** `gen_ai.operation.name` of the OpenTelemetry conventions. */
  readonly operation: string;
}

/** What is forwarded, and how. A path that is not here is never forwarded (docs/protocol/inference.md 1 and 5.1). */
export const ENDPOINTS: readonly Endpoint[] = [
  {
    id: 'chat',
    methods: ['POST'],
    path: '/v1/chat/completions',
    versionless: true,
    errorFormat: 'openai',
    codec: 'json',
    requestPlain: new Set(['model', 'stream', 'stream_options', 'n', 'max_tokens', 'max_completion_tokens']),
    responsePlain: new Set(['id', 'usage']),
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
    versionless: true,
    errorFormat: 'openai',
    codec: 'json',
    requestPlain: new Set(['model', 'stream', 'stream_options', 'n', 'max_tokens', 'max_completion_tokens']),
    responsePlain: new Set(['id', 'usage']),
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
    versionless: true,
    errorFormat: 'anthropic',
    codec: 'json',
    requestPlain: new Set(['model', 'stream']),
    responsePlain: new Set(['id', 'type', 'usage']),
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
    versionless: true,
    errorFormat: 'openai',
    codec: 'json',
    requestPlain: new Set(['model']),
    responsePlain: new Set(['id', 'usage']),
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
    versionless: true,
    errorFormat: 'openai',
    codec: 'multipart',
    requestPlain: new Set(['model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats']),
    responsePlain: new Set(['duration', 'usage']),
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
    versionless: false,
    errorFormat: 'openai',
    codec: 'raw',
    requestPlain: new Set(),
    responsePlain: new Set(),
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
    versionless: true,
    errorFormat: 'openai',
    codec: 'none',
    requestPlain: new Set(),
    responsePlain: new Set(),
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
    versionless: true,
    errorFormat: 'openai',
    codec: 'none',
    requestPlain: new Set(),
    responsePlain: new Set(),
    salted: false,
    terminal: undefined,
    encrypted: false,
    query: [],
    operation: 'get_model',
  },
];

export type LocalId = 'root' | 'hello' | 'healthz' | 'readyz' | 'api' | 'count_tokens';

/** Paths that have an answer of their own, or an error of their own. */
interface Row {
  readonly path: string;
  readonly versionless: boolean;
}

interface LocalRow extends Row {
  readonly id: LocalId;
  readonly methods: readonly string[];
}

/** Answered here, without the remote. `/api/hello` is a pre-connect probe of coding agents. */
const LOCAL: readonly LocalRow[] = [
  { path: '/', id: 'root', methods: ['GET'], versionless: false },
  { path: '/api/hello', id: 'hello', methods: ['GET'], versionless: false },
  { path: '/health', id: 'healthz', methods: ['GET'], versionless: false },
  { path: '/healthz', id: 'healthz', methods: ['GET'], versionless: false },
  { path: '/readyz', id: 'readyz', methods: ['GET'], versionless: false },
  { path: '/v1', id: 'api', methods: ['GET'], versionless: false },
  { path: '/v1/messages/count_tokens', id: 'count_tokens', methods: ['POST'], versionless: true },
];

/** Names the setting of the clients that use this API unless told otherwise: their users read this line, and no page of ours. */
const NO_RESPONSES_API =
  "the service has no Responses API; set the client to chat completions: AI SDK openai.chat('MODEL'), openai-agents " +
  "set_default_openai_api('chat_completions'), Pydantic AI OpenAIChatModel, LiteLLM custom_openai/MODEL; Codex CLI needs " +
  'a bridge such as LiteLLM';

interface UnsupportedRow extends Row {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Paths that clients try and that get an error of their own. */
const UNSUPPORTED: readonly UnsupportedRow[] = [
  { path: '/v1/responses', code: 'not_supported', message: NO_RESPONSES_API, versionless: true },
  { path: '/v1/responses/*', code: 'not_supported', message: NO_RESPONSES_API, versionless: true },
];

export interface EndpointMatch {
  readonly kind: 'endpoint';
  readonly endpoint: Endpoint;
  /** What to send upstream: the canonical path and the allowed parameters of the query, exactly as received. */
  readonly target: string;
  /** Names of the query parameters that were dropped, for the log; their values are nowhere. */
  readonly dropped: readonly string[];
}

export interface LocalMatch {
  readonly kind: 'local';
  readonly id: LocalId;
  readonly format: ErrorFormat;
}

export interface Refusal {
  readonly kind: 'refusal';
  readonly code: ErrorCode;
  readonly message: string;
  readonly format: ErrorFormat;
  /** With method_not_allowed: the value of `Allow`. */
  readonly allow: readonly string[] | undefined;
}

/**
 * Decides what a request line means; the target exactly as it came over the wire.
 * Preflights are answered before (cors.ts); an OPTIONS that arrives here is a wrong method.
 */
export function matchEndpoint(method: string, rawTarget: string): EndpointMatch | LocalMatch | Refusal {
  const parsed = parseTarget(rawTarget);
  if (typeof parsed === 'string') return refuse('invalid_path', parsed, 'plain');
  const { path, query } = parsed;

  const local = meant(LOCAL, path);
  if (local !== undefined) {
    const { id, methods } = local.row;
    if (!allows(methods, method)) return wrongMethod(methods, local.path);
    return { kind: 'local', id, format: formatOf(local.path) };
  }
  const unsupported = meant(UNSUPPORTED, path);
  if (unsupported !== undefined) {
    return refuse(unsupported.row.code, unsupported.row.message, formatOf(unsupported.path));
  }
  const known = meant(ENDPOINTS, path);
  if (known === undefined) return refuse('unknown_path', 'there is no such endpoint here', formatOf(path));
  const { row: endpoint, path: canonical } = known;
  if (!allows(endpoint.methods, method)) return wrongMethod(endpoint.methods, canonical);
  const { kept, dropped } = filterQuery(query, endpoint.query);
  return { kind: 'endpoint', endpoint, target: canonical + kept, dropped };
}

/**
 * The row that a path means, and the path as that row would write it: with `/v1`, and without a slash at the end. Below `/*`
 * every byte belongs to somebody else's path and stays.
 */
function meant<R extends Row>(
  rows: readonly R[],
  path: string,
): { readonly row: R; readonly path: string } | undefined {
  const trimmed = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
  for (const row of rows) {
    const written = row.path.endsWith('/*') ? path : trimmed;
    if (covers(row.path, written)) return { row, path: written };
    if (row.versionless && covers(row.path, `/v1${written}`)) return { row, path: `/v1${written}` };
  }
  return undefined;
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
  const known = meant<Row>([...LOCAL, ...UNSUPPORTED, ...ENDPOINTS], path);
  if (known !== undefined) return known.row.path;
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

/** Clients of the message style understand errors only in their own form. Of a canonical path. */
const formatOf = (path: string): ErrorFormat =>
  path === '/v1/messages' || path.startsWith('/v1/messages/')
    ? 'anthropic'
    : path === '/v1' || path.startsWith('/v1/') || path.startsWith('/unstructured/')
      ? 'openai'
      : 'plain';

function refuse(code: ErrorCode, message: string, format: ErrorFormat, allow?: readonly string[]): Refusal {
  return { kind: 'refusal', code, message, format, allow };
}

function wrongMethod(methods: readonly string[], path: string): Refusal {
  const allow = withHead(methods);
  return refuse('method_not_allowed', `this path takes ${allow.join(', ')} only`, formatOf(path), allow);
}

/** The methods and paths that are served under `/v1`, for people: `POST /v1/messages`. */
export const SERVED: readonly string[] = [
  ...ENDPOINTS,
  ...LOCAL.filter(({ id }) => id === 'count_tokens'),
].map(({ methods, path }) => `${methods.join(', ')} ${path}`);
