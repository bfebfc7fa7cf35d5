/**
 * Lists in one table what an honest response consists of: rows by endpoint, and by event or whole body
 * (docs/protocol/grammar.md).
 *
 * Values are authenticated and numbered. Names of members, types of events and plain members are not, so a
 * gateway could hide content under a name that clients skip, or pass one member off as another. To hide an
 * event, the gateway must put all of its messages somewhere. So it is enough to refuse one message that each
 * event has, wherever else it turns up.
 */
import type { EndpointId } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';

type Members = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const listOf =
  (isItem: (item: Members) => boolean) =>
  (value: unknown): boolean =>
    Array.isArray(value) && value.every((item) => isObject(item) && isItem(item));

const isText = (value: unknown): boolean => typeof value === 'string';

const endsInDelta = ({ type }: Members): boolean => typeof type === 'string' && type.endsWith('_delta');

/**
 * The kinds of sealed values. Some are simple kinds of JSON. Others carry content, and differ by what the
 * value holds.
 */
const KINDS = {
  string: isText,
  'string?': (value: unknown) => isText(value) || value === null,
  integer: Number.isInteger,
  object: isObject,
  array: Array.isArray,
  'array?': (value: unknown) => Array.isArray(value) || value === null,
  // A choice of a whole body has finished; a choice of a chunk has a piece of one. The gateway can make the
  // service send either.
  chat_choices: listOf((choice) => isObject(choice['message']) && isText(choice['finish_reason'])),
  text_choices: listOf((choice) => isText(choice['text']) && isText(choice['finish_reason'])),
  chat_deltas: listOf((choice) => isObject(choice['delta'])),
  text_deltas: listOf((choice) => isText(choice['text'])),
  error: (value: unknown) => isObject(value) && isText(value['message']),
  blocks: listOf((block) => isText(block['type'])),
  // The gateway could put the delta of a block here, which has no `id`, `model` or `content`.
  message: (value: unknown) =>
    isObject(value) &&
    isText(value['id']) &&
    isText(value['model']) &&
    Array.isArray(value['content']) &&
    value['content'].length === 0,
  block: (value: unknown) => isObject(value) && isText(value['type']) && !endsInDelta(value),
  block_delta: (value: unknown) =>
    isObject(value) && endsInDelta(value) && !Object.hasOwn(value, 'stop_reason'),
  message_delta: (value: unknown) =>
    isObject(value) && Object.hasOwn(value, 'stop_reason') && !isText(value['type']),
};

type Kind = keyof typeof KINDS;

/**
 * Whether a value is an element of a document. The gateway could make one of an error, which is an object too
 * but has neither `element_id` nor `text`.
 */
export const isElement = (value: unknown): boolean =>
  isObject(value) && isText(value['type']) && isText(value['element_id']) && isText(value['text']);

/** The sealed members of one event or whole body. */
export interface GrammarRow {
  /** Each must be there, once. */
  readonly required: Readonly<Record<string, Kind>>;
  /** The required member that says how far a stream is, or how it failed. */
  readonly content?: string;
  /** Each may be there, and may be null. */
  readonly optional?: Readonly<Record<string, Kind>>;
  /**
   * The value of `object`, which names the kind of the response. In a stream, the other required members
   * except `content` have the same value in all events.
   */
  readonly object?: string;
  /** The value of the plain member `type` of a whole body. */
  readonly type?: string;
  /**
   * Which members pass that are not listed. `harmless`: those that do not look like content. `empty`: only
   * null, `[]` and `{}`. Default: none.
   */
  readonly others?: 'harmless' | 'empty';
}

export interface StreamGrammar {
  /**
   * In which order events come, and when the stream is complete (event-order.ts). Those of `blocks` are
   * named: their plain member `type` gives their type, and the `event:` line repeats it.
   */
  readonly order: 'choices' | 'audio' | 'blocks';
  /** The rows by type of event. If events are not named, the types are `chunk` and `error`. */
  readonly events: Readonly<Record<string, GrammarRow>>;
}

/** Kinds of JSON value. */
export type PlainKind = 'string' | 'number' | 'object' | 'null';
/** The members that are not encrypted, and the kinds of value they may have. */
export type PlainMembers = ReadonlyMap<string, readonly PlainKind[]>;

export interface ResponseGrammar {
  readonly plain: PlainMembers;
  /** Undefined if the endpoint has no streams. */
  readonly stream?: StreamGrammar;
  /**
   * The row of a success, by the `response_format` that was asked for, or `other`. Undefined if a success is
   * an array of elements (isElement).
   */
  readonly whole?: Readonly<Record<string, GrammarRow>> & { readonly other: GrammarRow };
}

const USAGE = ['usage', ['object', 'null']] as const;
const OPENAI_PLAIN: PlainMembers = new Map<string, readonly PlainKind[]>([['id', ['string', 'null']], USAGE]);

/** What each chunk and each whole body of the OpenAI style has, beside its choices. */
const HEAD = { created: 'integer', model: 'string', object: 'string' } as const;
const TRANSFER_PARAMS = { ec_transfer_params: 'object', kv_transfer_params: 'object' } as const;
const CHUNK_EXTRAS = {
  kv_transfer_params: 'object',
  metrics: 'object',
  prompt_text: 'string',
  prompt_token_ids: 'array',
  service_tier: 'string',
  system_fingerprint: 'string',
} as const;
const WHOLE_EXTRAS = { ...CHUNK_EXTRAS, ...TRANSFER_PARAMS, prompt_logprobs: 'array' } as const;

/** A stream of chunks that are all of one kind, with `more` required members. */
const chunkStream = (
  object: string,
  choices: 'chat_deltas' | 'text_deltas',
  order: 'choices' | 'audio',
  more: Record<string, 'string'> = {},
): StreamGrammar => ({
  order,
  events: {
    chunk: {
      object,
      required: { ...HEAD, ...more, choices },
      content: 'choices',
      optional: CHUNK_EXTRAS,
      others: 'harmless',
    },
    // The model server's error stands alone in its event.
    error: { required: { error: 'error' }, content: 'error', others: 'harmless' },
  },
});

const MESSAGE_STREAM: StreamGrammar = {
  order: 'blocks',
  events: {
    message_start: { required: { message: 'message' }, content: 'message' },
    content_block_start: { required: { content_block: 'block', index: 'integer' } },
    content_block_delta: { required: { delta: 'block_delta', index: 'integer' } },
    content_block_stop: { required: { index: 'integer' } },
    message_delta: {
      required: { delta: 'message_delta' },
      content: 'delta',
      optional: { context_management: 'object' },
    },
    message_stop: { required: {} },
    ping: { required: {} },
    error: { required: { error: 'error' }, content: 'error' },
  },
};

const completion = (object: string, choices: 'chat_choices' | 'text_choices'): GrammarRow => ({
  object,
  required: { ...HEAD, choices },
  optional: WHOLE_EXTRAS,
  others: 'harmless',
});

const transcript = (required: GrammarRow['required']): GrammarRow => ({ required, others: 'harmless' });

const CHAT: ResponseGrammar = {
  plain: OPENAI_PLAIN,
  stream: chunkStream('chat.completion.chunk', 'chat_deltas', 'choices'),
  whole: { other: completion('chat.completion', 'chat_choices') },
};

const GRAMMAR: Readonly<Partial<Record<EndpointId, ResponseGrammar>>> = {
  chat: CHAT,
  responses: CHAT, // translated once it has been checked
  completions: {
    plain: OPENAI_PLAIN,
    stream: chunkStream('text_completion', 'text_deltas', 'choices'),
    whole: { other: completion('text_completion', 'text_choices') },
  },
  messages: {
    plain: new Map([...OPENAI_PLAIN, ['type', ['string']]]),
    stream: MESSAGE_STREAM,
    whole: {
      other: {
        type: 'message',
        // A message without a reason why it stopped is unfinished.
        required: { content: 'blocks', model: 'string', role: 'string', stop_reason: 'string' },
        optional: { ...TRANSFER_PARAMS, stop_sequence: 'string' },
        // If any name could hold text, the gateway could give the reason another name, and the sequence the
        // name of the reason.
        others: 'empty',
      },
    },
  },
  embeddings: {
    plain: OPENAI_PLAIN,
    whole: {
      other: {
        object: 'list',
        required: { data: 'array', model: 'string?', object: 'string' },
        optional: { created: 'integer' },
        others: 'harmless',
      },
    },
  },
  transcription: {
    plain: new Map<string, readonly PlainKind[]>([['duration', ['string', 'number', 'null']], USAGE]),
    stream: chunkStream('transcription.chunk', 'chat_deltas', 'audio', { id: 'string' }),
    whole: {
      verbose_json: transcript({ language: 'string', segments: 'array?', text: 'string', words: 'array?' }),
      diarized_json: transcript({ segments: 'array', task: 'string', text: 'string' }),
      other: transcript({ text: 'string' }),
    },
  },
  unstructured: { plain: new Map() },
};

/** The grammar of an endpoint's responses. Throws `internal` if they are not encrypted. */
export function grammarOf({ id }: { readonly id: EndpointId }): ResponseGrammar {
  const grammar = GRAMMAR[id];
  if (grammar !== undefined) return grammar;
  throw new PrivatemodeError('internal', 'an encrypted response of an endpoint without a grammar');
}

/** Members by which a choice, or its counterpart in another API style, is recognised. */
const CHOICE_MEMBERS = ['index', 'delta', 'text', 'message', 'finish_reason'];

/**
 * Whether a value that is not a required member could be the content of another event: the `object` of this
 * kind of body, a list of choices, or an error.
 */
function looksLikeContent(value: unknown, object: string | undefined): boolean {
  if (typeof value === 'string') return value === object;
  if (Array.isArray(value)) {
    return value.some((item) => isObject(item) && CHOICE_MEMBERS.some((name) => Object.hasOwn(item, name)));
  }
  if (!isObject(value)) return false;
  return isText(value['message']) && (Object.hasOwn(value, 'type') || Object.hasOwn(value, 'code'));
}

/** The kind that a member of the row must have; undefined if the row does not require it. */
export const requiredKind = ({ required }: GrammarRow, name: string): Kind | undefined =>
  Object.hasOwn(required, name) ? required[name] : undefined;

/** Whether a parsed value may be that of this member of the row. */
export function fitsRow(row: GrammarRow, name: string, value: unknown): boolean {
  const { optional = {}, others, object } = row;
  const required = requiredKind(row, name);
  if (required !== undefined) return KINDS[required](value) && (name !== 'object' || value === object);
  if (value === null) return true;
  // An error is not a success: beside content it may be null only.
  if (name.toLowerCase() === 'error' || looksLikeContent(value, object)) return false;
  if (Object.hasOwn(optional, name)) return KINDS[optional[name]!](value);
  return others === 'harmless' || (typeof value === 'object' && Object.keys(value).length === 0);
}

/**
 * Whether the sealed members may be those of that row. All required ones must be there. Members that are not
 * listed may be there if the row takes any; their names must not differ from a known name by letter case
 * alone, which some clients ignore.
 */
export function hasNames(
  { required, optional = {}, others }: GrammarRow,
  sealed: readonly { readonly name: string }[],
  plain: PlainMembers,
): boolean {
  const known = [...Object.keys(required), ...Object.keys(optional)];
  const taken = [...known, ...plain.keys()].map((name) => name.toLowerCase());
  const mayBe = ({ name }: { readonly name: string }): boolean =>
    known.includes(name) || (others !== undefined && !taken.includes(name.toLowerCase()));
  return (
    Object.keys(required).every((each) => sealed.some(({ name }) => name === each)) && sealed.every(mayBe)
  );
}
