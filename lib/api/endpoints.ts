/** The endpoint table: which paths the proxy forwards or answers, and how. match-endpoint.ts reads it. */

export interface PathRow {
  /** The exact path. A final `/*` stands for every path below it. A final `/{id}` stands for any id. */
  readonly path: string;
  readonly methods: readonly string[];
}

const POST = ['POST'];
const GET = ['GET', 'HEAD'];

type Generation = 'chat' | 'responses' | 'completions' | 'messages';
export type EndpointId = Generation | 'embeddings' | 'transcription' | 'unstructured' | 'models' | 'model';

export interface Endpoint extends PathRow {
  readonly id: EndpointId;
  /** How the request body is sealed. With `none`, no body is sent, and the response is not encrypted. */
  readonly codec: 'json' | 'multipart' | 'raw' | 'none';
  /** The members or form fields, by name, that are sent unencrypted (docs/protocol/inference.md 5.1). */
  readonly requestPlain: ReadonlySet<string>;
  /** Whether the body gets a cache salt and the headers get a shard key (docs/protocol/inference.md 8). */
  readonly salted: boolean;
  readonly query: readonly string[]; // the parameters that the service gets; all others are dropped
  /** `gen_ai.operation.name` of the OpenTelemetry conventions; undefined where no inference runs. */
  readonly operation?: string;
  readonly translatedTo?: string; // the path to which a translated request is sent
}

/** Values that most endpoints share; a row names only what differs. */
const INFERENCE = {
  methods: POST,
  codec: 'json',
  requestPlain: new Set<string>(),
  salted: false,
  query: [],
} as const;
const GENERATION = {
  ...INFERENCE,
  requestPlain: new Set(['model', 'stream', 'stream_options', 'n', 'max_tokens', 'max_completion_tokens']),
  salted: true,
  operation: 'chat',
} as const;
const MODEL = new Set(['model']);
const CHAT = { ...GENERATION, id: 'chat', path: '/v1/chat/completions' } as const;
const PAGES = ['limit', 'after', 'after_id', 'before_id', 'order'];
const LISTING = { ...INFERENCE, methods: GET, codec: 'none' } as const;

/** The forwarded endpoints. Other paths are never forwarded (docs/protocol/inference.md 1 and 5.1). */
export const ENDPOINTS: readonly Endpoint[] = [
  CHAT,
  { ...CHAT, id: 'responses', path: '/v1/responses', translatedTo: CHAT.path },
  { ...GENERATION, id: 'completions', path: '/v1/completions', operation: 'text_completion' },
  {
    ...GENERATION,
    id: 'messages',
    path: '/v1/messages',
    requestPlain: new Set(['model', 'stream']),
    query: ['beta'],
  },
  { ...INFERENCE, id: 'embeddings', path: '/v1/embeddings', requestPlain: MODEL, operation: 'embeddings' },
  {
    ...INFERENCE,
    id: 'transcription',
    path: '/v1/audio/transcriptions',
    codec: 'multipart',
    requestPlain: new Set(['model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats']),
    operation: 'transcription',
  },
  { ...INFERENCE, id: 'unstructured', path: '/unstructured/*', codec: 'raw', operation: 'unstructured' },
  { ...LISTING, id: 'models', path: '/v1/models', query: PAGES },
  { ...LISTING, id: 'model', path: '/v1/models/{id}' },
];

export type LocalId = 'root' | 'healthz' | 'readyz' | 'api' | 'count_tokens';

/** Paths that the proxy answers itself. `/api/hello` is a pre-connect probe of coding agents. */
export const LOCAL: readonly (PathRow & { readonly id: LocalId })[] = [
  { path: '/', id: 'root', methods: GET },
  { path: '/api/hello', id: 'healthz', methods: GET },
  { path: '/health', id: 'healthz', methods: GET },
  { path: '/healthz', id: 'healthz', methods: GET },
  { path: '/readyz', id: 'readyz', methods: GET },
  { path: '/v1', id: 'api', methods: GET },
  { path: '/v1/messages/count_tokens', id: 'count_tokens', methods: POST },
];

/** The endpoints that applications may use, as texts for people, such as `POST /v1/messages`. */
export const served = (responsesApi: boolean): readonly string[] =>
  [...ENDPOINTS, ...LOCAL.filter(({ id }) => id === 'count_tokens')]
    .filter(({ id }) => id !== 'responses' || responsesApi)
    .map(({ methods, path }) => `${methods[0]} ${path}`);
