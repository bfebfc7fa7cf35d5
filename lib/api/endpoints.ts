/**
 * The endpoint table: which paths are forwarded, answered here, or refused with an error of their own, and
 * how each is treated. match-endpoint.ts finds the row of a request.
 */
import type { ErrorFormat } from './error-response.ts';

export type EndpointId =
  | 'chat'
  | 'responses'
  | 'completions'
  | 'messages'
  | 'embeddings'
  | 'transcription'
  | 'unstructured'
  | 'models'
  | 'model';

export interface Endpoint {
  readonly id: EndpointId;
  /** HEAD is not listed: it is served wherever GET is. */
  readonly methods: readonly string[];
  /** Exact, unless it ends with `/*`, for every path below, or with `/{id}`, for those with an id. */
  readonly path: string;
  /** Served without its `/v1` too: base URLs are pasted with and without it. */
  readonly versionless: boolean;
  readonly errorFormat: ErrorFormat;
  /** How the request body is sealed; `none` sends no body at all. */
  readonly codec: 'json' | 'multipart' | 'raw' | 'none';
  /** Members (of forms: value fields) left unencrypted, by exact name (docs/protocol/inference.md 5.1). */
  readonly requestPlain: ReadonlySet<string>;
  /** Whether the body gets a cache salt and the headers get a shard key (docs/protocol/inference.md 8). */
  readonly salted: boolean;
  /** The event that ends a complete stream (docs/protocol/inference.md 6.2). */
  readonly terminal: '[DONE]' | 'message_stop' | undefined;
  /** False: no message is sealed or opened; only the rules for headers apply. */
  readonly encrypted: boolean;
  /** Query parameters that the remote gets; match-endpoint.ts drops all others. */
  readonly query: readonly string[];
  /** `gen_ai.operation.name` of the OpenTelemetry conventions. */
  readonly operation: string;
  /** The path for a request that is translated before it is encrypted; undefined: its own path, unchanged. */
  readonly translatedTo?: string;
  /**
   * If set: the endpoint is served only if the caller of `matchEndpoint` offers it. Else a request is refused
   * as not_supported, with this message.
   */
  readonly unlessOffered?: string;
  /**
   * Why the path takes no other method. A request with one gets 404 with this message, or 426 if it asks for
   * a WebSocket. Undefined: it gets 405.
   */
  readonly otherMethods?: string;
}

/** Values that most endpoints share; a row names only what differs. */
const INFERENCE = {
  methods: ['POST'],
  versionless: true,
  errorFormat: 'openai',
  codec: 'json',
  salted: false,
  requestPlain: new Set<string>(),
  terminal: undefined,
  encrypted: true,
  query: [],
} as const;

const GENERATION = {
  ...INFERENCE,
  requestPlain: new Set(['model', 'stream', 'stream_options', 'n', 'max_tokens', 'max_completion_tokens']),
  salted: true,
  terminal: '[DONE]',
} as const;

const LISTING = { ...INFERENCE, methods: ['GET'], codec: 'none', encrypted: false } as const;

const NO_RESPONSES_API = 'the service has no Responses API';

/** The message for a request that reads, deletes or cancels a stored response, or counts its tokens. */
const NOTHING_STORED =
  'there is no such response: none is stored, here or by the service (store is false); send POST /v1/responses with the whole conversation as input';

/**
 * The forwarded endpoints. A path that is not here is never forwarded (docs/protocol/inference.md 1 and 5.1).
 */
export const ENDPOINTS: readonly Endpoint[] = [
  { ...GENERATION, id: 'chat', path: '/v1/chat/completions', operation: 'chat' },
  {
    ...GENERATION,
    id: 'responses',
    path: '/v1/responses',
    errorFormat: 'responses',
    operation: 'chat',
    translatedTo: '/v1/chat/completions',
    unlessOffered: NO_RESPONSES_API,
    otherMethods: NOTHING_STORED,
  },
  { ...GENERATION, id: 'completions', path: '/v1/completions', operation: 'text_completion' },
  {
    ...GENERATION,
    id: 'messages',
    path: '/v1/messages',
    errorFormat: 'anthropic',
    requestPlain: new Set(['model', 'stream']),
    terminal: 'message_stop',
    query: ['beta'],
    operation: 'chat',
  },
  {
    ...INFERENCE,
    id: 'embeddings',
    path: '/v1/embeddings',
    requestPlain: new Set(['model']),
    operation: 'embeddings',
  },
  {
    ...INFERENCE,
    id: 'transcription',
    path: '/v1/audio/transcriptions',
    codec: 'multipart',
    requestPlain: new Set(['model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats']),
    terminal: '[DONE]',
    operation: 'transcription',
  },
  {
    ...INFERENCE,
    id: 'unstructured',
    path: '/unstructured/*',
    versionless: false,
    codec: 'raw',
    operation: 'unstructured',
  },
  {
    ...LISTING,
    id: 'models',
    path: '/v1/models',
    query: ['limit', 'after', 'after_id', 'before_id', 'order'],
    operation: 'list_models',
  },
  { ...LISTING, id: 'model', path: '/v1/models/{id}', operation: 'get_model' },
];

export type LocalId = 'root' | 'hello' | 'healthz' | 'readyz' | 'api' | 'count_tokens' | 'verification';

const onAdminListener = (path: string, listeners = '--admin-address'): string =>
  `${path} is not on this port, but on the listener of ${listeners} (such as 127.0.0.1:9090)`;

/** Paths that are answered here, without the remote. `/api/hello` is a pre-connect probe of coding agents. */
export const LOCAL: readonly (Pick<Endpoint, 'methods' | 'path' | 'versionless'> & {
  readonly id: LocalId;
  /**
   * If set: the path is served only if the caller of `matchEndpoint` offers it. Else there is no such path,
   * and the error has this message.
   */
  readonly optional?: string;
})[] = [
  { path: '/', id: 'root', methods: ['GET'], versionless: false },
  { path: '/api/hello', id: 'hello', methods: ['GET'], versionless: false },
  { path: '/health', id: 'healthz', methods: ['GET'], versionless: false },
  { path: '/healthz', id: 'healthz', methods: ['GET'], versionless: false },
  { path: '/readyz', id: 'readyz', methods: ['GET'], versionless: false },
  {
    path: '/verification',
    id: 'verification',
    methods: ['GET'],
    versionless: false,
    optional: `${onAdminListener('/verification')}, or here with --expose-verification`,
  },
  { path: '/v1', id: 'api', methods: ['GET'], versionless: false },
  { path: '/v1/messages/count_tokens', id: 'count_tokens', methods: ['POST'], versionless: true },
];

/**
 * Paths that clients try, and that get an error of their own. Below `/v1/responses` nothing is served, even
 * if the Responses API is translated.
 */
export const UNSUPPORTED = [
  {
    path: '/v1/responses/*',
    versionless: true,
    unlessOffered: NO_RESPONSES_API,
    otherMethods: NOTHING_STORED,
  },
  {
    path: '/metrics',
    versionless: false,
    otherMethods: onAdminListener('/metrics', '--metrics-address or --admin-address'),
  },
  { path: '/status', versionless: false, otherMethods: onAdminListener('/status') },
] as const;

/** Paths that are served only if the caller of `matchEndpoint` offers them. */
export type Offered = 'verification' | 'responses';

/** The methods and paths that are served under `/v1`, for people: `POST /v1/messages`. */
export const served = (offered: readonly Offered[]): readonly string[] =>
  [
    ...ENDPOINTS.filter(
      ({ id, unlessOffered }) => unlessOffered === undefined || offered.includes(id as Offered),
    ),
    ...LOCAL.filter(({ id }) => id === 'count_tokens'),
  ].map(({ methods, path }) => `${methods.join(', ')} ${path}`);
