/**
 * The encrypted endpoints once more, as literals (docs/protocol/inference.md 1 and 5.1,
 * docs/protocol/grammar.md): a test that seals, opens or compares with lib's own tables cannot notice a name
 * too many in them.
 */

/** The members that are not encrypted, per list of the protocol. */
export const PLAIN_MEMBERS = {
  /** chat, completions: request */
  C: new Set(['model', 'stream_options', 'max_tokens', 'max_completion_tokens', 'n', 'stream']),
  /** messages: request */
  M: new Set(['model', 'stream']),
  /** embeddings: request */
  E: new Set(['model']),
  /** transcriptions: form fields of the request */
  T: new Set(['model', 'stream', 'stream_include_usage', 'stream_continuous_usage_stats']),
  /** chat, completions, embeddings: response */
  R: new Set(['id', 'usage']),
  /** messages: response */
  MR: new Set(['id', 'type', 'usage']),
  /** transcriptions: response */
  TR: new Set(['duration', 'usage']),
  /** unstructured: response */
  NONE: new Set<string>(),
} as const satisfies Record<string, ReadonlySet<string>>;
const { C, M, E, T, R, MR, TR, NONE } = PLAIN_MEMBERS;

/** The shape of a whole answer, in the notation of transcripts/grammar.ts, which knows the shapes in it. */
const COMPLETION = `id:str created:int model:str usage:obj service_tier?:str|null system_fingerprint?:str|null
  kv_transfer_params?:maybe ec_transfer_params?:maybe metrics?:maybe`;
export const PROMPT = 'prompt_logprobs?:[maybe]|null prompt_token_ids?:[int]|null';

/** The members that a client reads of an answer in chunks, and of one of chat and completions as a whole. */
const CHUNK = ['choices', 'created', 'model', 'object'];

export interface LiteralEndpoint {
  readonly path: string;
  readonly codec: 'json' | 'multipart' | 'raw';
  readonly salted: boolean;
  /** The members that are not encrypted. */
  readonly plain: Readonly<Record<'request' | 'response', ReadonlySet<string>>>;
  readonly whole: string;
  /** The members that a client reads of a whole answer and of an event; without the latter, none streams. */
  readonly read: readonly [whole: readonly string[], event?: readonly string[]];
  /** What an attacked exchange asks for, beside the members of its transcript. */
  readonly asks?: Readonly<Record<string, string>>;
}

export const ENDPOINTS = {
  chat: {
    ...{ path: '/v1/chat/completions', codec: 'json', salted: true, plain: { request: C, response: R } },
    whole: `${COMPLETION} ${PROMPT} object:"chat.completion" choices:[chat_choice] prompt_text?:str|null`,
    read: [CHUNK, CHUNK],
  },
  completions: {
    ...{ path: '/v1/completions', codec: 'json', salted: true, plain: { request: C, response: R } },
    whole: `${COMPLETION} object:"text_completion" choices:[text_choice]`,
    read: [CHUNK, CHUNK],
  },
  messages: {
    ...{ path: '/v1/messages', codec: 'json', salted: true, plain: { request: M, response: MR } },
    whole: `id:str type:"message" role:"assistant" content:[obj] model:str stop_reason:str usage:obj
      stop_sequence?:str kv_transfer_params?:obj ec_transfer_params?:obj`,
    read: [
      ['content', 'model', 'role', 'stop_reason'],
      ['type', 'message', 'index', 'content_block', 'delta'],
    ],
  },
  embeddings: {
    ...{ path: '/v1/embeddings', codec: 'json', salted: false, plain: { request: E, response: R } },
    whole: 'object:"list" data:[embedding] model:str|null id:str usage:obj created?:int',
    read: [['data', 'model', 'object']],
  },
  transcription: {
    ...{
      path: '/v1/audio/transcriptions',
      codec: 'multipart',
      salted: false,
      plain: { request: T, response: TR },
    },
    whole: 'text:str usage?:obj',
    read: [
      ['language', 'segments', 'text', 'words'],
      [...CHUNK, 'id'],
    ],
    asks: { language: 'en', prompt: 'spoken' },
  },
  unstructured: {
    ...{
      path: '/unstructured/general/v0/general',
      codec: 'raw',
      salted: false,
      plain: { request: NONE, response: NONE },
    },
    whole: '[element]|[[element]]',
    read: [[]],
    asks: { document: 'pages' },
  },
} as const satisfies Readonly<Record<string, LiteralEndpoint>>;

export type EndpointName = keyof typeof ENDPOINTS;

/** The row of an endpoint. */
export const literalEndpoint = (name: EndpointName): LiteralEndpoint => ENDPOINTS[name];

/** Its plain members, as lists. */
export const plainOf = (name: EndpointName) => ({
  request: [...literalEndpoint(name).plain.request],
  response: [...literalEndpoint(name).plain.response],
});
