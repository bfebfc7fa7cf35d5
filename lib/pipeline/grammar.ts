/**
 * What an honest response consists of, in one table: rows by endpoint, and by event or whole body (docs/protocol/grammar.md).
 *
 * Values are authenticated and numbered. Names of members, types of events and plain members are not, so a gateway could hide
 * content under a name that clients skip, or pass one member off as another. To hide an event, all of its messages must go
 * somewhere: refusing one that each event has, wherever else it turns up, is enough.
 */
import { ENDPOINTS, type EndpointId } from '../api/endpoints.ts';
import type { JsonKind } from './json/json-index.ts';

/** What the JSON text of a sealed value must be; with `?` also null. */
export type Kind = BasicKind | `${BasicKind}?` | ContentKind;
type BasicKind = 'string' | 'integer' | 'object' | 'array' | 'null';
/** Values that carry the content, told apart by what is inside: of whole bodies, and of events. */
type ContentKind =
  | ('chat_choices' | 'text_choices' | 'blocks')
  | ('error' | 'chat_deltas' | 'text_deltas' | 'message' | 'block' | 'block_delta' | 'message_delta');

/** The sealed members of one event or whole body. */
export interface Row {
  /** Each must be there, once. */
  readonly required: Readonly<Record<string, Kind>>;
  /** Each may be there, null too. */
  readonly optional?: Readonly<Record<string, BasicKind>>;
  /** The value of `object`, which says of what kind the body is. */
  readonly object?: string;
  /**
   * Which members pass that are not listed: those that do not look like content, or only null, `[]` and `{}`. Default none.
   */
  readonly others?: 'harmless' | 'empty';
}

/** The plain members and the kinds of JSON value they may have. */
type PlainKinds = Readonly<Record<string, readonly JsonKind[]>>;

export interface StreamGrammar {
  readonly plain: ReadonlySet<string>;
  readonly plainKinds: PlainKinds;
  /** Whether an event is known by its plain member `type`, which its `event:` line repeats. */
  readonly named: boolean;
  /** By type; where events are not named, `chunk` and `error`. */
  readonly events: Readonly<Record<string, Row>>;
  /** Members whose value is the same in every event that has them. */
  readonly constant: readonly string[];
  /** In which order events come, and when the stream is complete (stream-order.ts). */
  readonly order: 'choices' | 'audio' | 'blocks';
}

export interface WholeGrammar {
  readonly plain: ReadonlySet<string>;
  readonly plainKinds: PlainKinds;
  /** The row of a success by the `response_format` it was asked for in; undefined where it is an array of elements. */
  readonly row: ((format: string | undefined) => Row) | undefined;
  /** What the plain member `type` of a success must be. */
  readonly type?: string;
}

export interface ResponseGrammar {
  /** Undefined where the endpoint has no streams. */
  readonly stream?: StreamGrammar;
  readonly whole: WholeGrammar;
}

/** Bytes of JSON text. Plain members are counts and short names; a gateway could make them as long as it likes. */
export const MAX_PLAIN_BYTES = 16 * 1024;

const USAGE: readonly JsonKind[] = ['object', 'null'];
const NAME: readonly JsonKind[] = ['string', 'null'];
const plainOf = (endpoint: EndpointId): ReadonlySet<string> =>
  ENDPOINTS.find(({ id }) => id === endpoint)!.responsePlain;
const OPENAI = { plain: plainOf('chat'), plainKinds: { id: NAME, usage: USAGE } };
const MESSAGES = {
  plain: plainOf('messages'),
  plainKinds: { id: NAME, type: ['string'], usage: USAGE },
} as const;
const AUDIO = {
  plain: plainOf('transcription'),
  plainKinds: { duration: ['string', 'number', 'null'], usage: USAGE },
} as const;

/** What each chunk and each whole body of the OpenAI style has, beside its choices. */
const HEAD = { created: 'integer', model: 'string', object: 'string' } as const;
/** Beside content only as null: an error is not a success. */
const NO_ERROR = { error: 'null' } as const;
const CHUNK_EXTRAS = {
  ...NO_ERROR,
  kv_transfer_params: 'object',
  metrics: 'object',
  prompt_text: 'string',
  prompt_token_ids: 'array',
  service_tier: 'string',
  system_fingerprint: 'string',
} as const;
const WHOLE_EXTRAS = { ...CHUNK_EXTRAS, ec_transfer_params: 'object', prompt_logprobs: 'array' } as const;

/** The model server's error stands alone in its event. */
const ERROR: Row = { required: { error: 'error' }, others: 'harmless' };

/** Chunks of one kind. */
const chunks = (
  object: string,
  choices: 'chat_deltas' | 'text_deltas',
  more: Row['required'] = {},
): StreamGrammar['events'] => ({
  chunk: { required: { ...HEAD, choices, ...more }, optional: CHUNK_EXTRAS, object, others: 'harmless' },
  error: ERROR,
});

const CONSTANT = ['created', 'model', 'object'];

const MESSAGE_EVENTS: StreamGrammar['events'] = {
  message_start: { required: { message: 'message' } },
  content_block_start: { required: { content_block: 'block', index: 'integer' } },
  content_block_delta: { required: { delta: 'block_delta', index: 'integer' } },
  content_block_stop: { required: { index: 'integer' } },
  message_delta: { required: { delta: 'message_delta' }, optional: { context_management: 'object' } },
  message_stop: { required: {} },
  ping: { required: {} },
  error: { required: { error: 'error' } },
};

const always =
  (row: Row): WholeGrammar['row'] =>
  () =>
    row;

/** Bodies of transcriptions by `response_format`; all others are like `json`. */
const TRANSCRIPTS: ReadonlyMap<string | undefined, Row> = new Map([
  [
    'verbose_json',
    {
      required: { language: 'string', segments: 'array?', text: 'string', words: 'array?' },
      optional: NO_ERROR,
      others: 'harmless',
    },
  ],
  [
    'diarized_json',
    {
      required: { segments: 'array', task: 'string', text: 'string' },
      optional: NO_ERROR,
      others: 'harmless',
    },
  ],
]);
const TRANSCRIPT: Row = { required: { text: 'string' }, optional: NO_ERROR, others: 'harmless' };

/** By the id of the endpoint (lib/api/endpoints.ts). */
export const GRAMMAR = {
  chat: {
    stream: {
      ...OPENAI,
      named: false,
      events: chunks('chat.completion.chunk', 'chat_deltas'),
      constant: CONSTANT,
      order: 'choices',
    },
    whole: {
      ...OPENAI,
      row: always({
        required: { ...HEAD, choices: 'chat_choices' },
        optional: WHOLE_EXTRAS,
        object: 'chat.completion',
        others: 'harmless',
      }),
    },
  },
  completions: {
    stream: {
      ...OPENAI,
      named: false,
      events: chunks('text_completion', 'text_deltas'),
      constant: CONSTANT,
      order: 'choices',
    },
    whole: {
      ...OPENAI,
      row: always({
        required: { ...HEAD, choices: 'text_choices' },
        optional: WHOLE_EXTRAS,
        object: 'text_completion',
        others: 'harmless',
      }),
    },
  },
  messages: {
    stream: { ...MESSAGES, named: true, events: MESSAGE_EVENTS, constant: [], order: 'blocks' },
    whole: {
      ...MESSAGES,
      type: 'message',
      row: always({
        // A message without a reason why it stopped is unfinished.
        required: { content: 'blocks', model: 'string', role: 'string', stop_reason: 'string' },
        optional: {
          ...NO_ERROR,
          ec_transfer_params: 'object',
          kv_transfer_params: 'object',
          stop_sequence: 'string',
        },
        // Under a name of its own, the reason could make room for the sequence.
        others: 'empty',
      }),
    },
  },
  embeddings: {
    whole: {
      ...OPENAI,
      row: always({
        required: { data: 'array', model: 'string?', object: 'string' },
        optional: { ...NO_ERROR, created: 'integer' },
        object: 'list',
        others: 'harmless',
      }),
    },
  },
  transcription: {
    stream: {
      ...AUDIO,
      named: false,
      events: chunks('transcription.chunk', 'chat_deltas', { id: 'string' }),
      constant: [...CONSTANT, 'id'],
      order: 'audio',
    },
    whole: { ...AUDIO, row: (format) => TRANSCRIPTS.get(format) ?? TRANSCRIPT },
  },
  unstructured: { whole: { plain: plainOf('unstructured'), plainKinds: {}, row: undefined } },
} as const satisfies Readonly<Record<string, ResponseGrammar>>;

type Members = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const listOf =
  (isItem: (item: Members) => boolean) =>
  (value: unknown): boolean =>
    Array.isArray(value) && value.every((item) => isObject(item) && isItem(item));

const isFinished = ({ finish_reason: finish }: Members): boolean => typeof finish === 'string';

const endsInDelta = ({ type }: Members): boolean => typeof type === 'string' && type.endsWith('_delta');

const KINDS: Readonly<Record<BasicKind | ContentKind, (value: unknown) => boolean>> = {
  string: (value) => typeof value === 'string',
  integer: Number.isInteger,
  object: isObject,
  array: Array.isArray,
  null: (value) => value === null,
  // A choice of a whole body has finished; one of a chunk has a piece of it. The gateway can have the service make either.
  chat_choices: listOf((choice) => isObject(choice['message']) && isFinished(choice)),
  text_choices: listOf((choice) => typeof choice['text'] === 'string' && isFinished(choice)),
  chat_deltas: listOf((choice) => isObject(choice['delta'])),
  text_deltas: listOf((choice) => typeof choice['text'] === 'string'),
  error: (value) => isObject(value) && typeof value['message'] === 'string',
  blocks: listOf((block) => typeof block['type'] === 'string'),
  // The gateway could put the delta of a block here: that has neither.
  message: (value) =>
    isObject(value) &&
    typeof value['id'] === 'string' &&
    typeof value['model'] === 'string' &&
    Array.isArray(value['content']) &&
    value['content'].length === 0,
  block: (value) => isObject(value) && typeof value['type'] === 'string' && !endsInDelta(value),
  block_delta: (value) => isObject(value) && endsInDelta(value) && !Object.hasOwn(value, 'stop_reason'),
  message_delta: (value) =>
    isObject(value) && Object.hasOwn(value, 'stop_reason') && typeof value['type'] !== 'string',
};

/** Tells whether a parsed value is of that kind. */
export function kindCheck(kind: Kind): (value: unknown) => boolean {
  if (!kind.endsWith('?')) return KINDS[kind as BasicKind | ContentKind];
  const check = KINDS[kind.slice(0, -1) as BasicKind];
  return (value) => value === null || check(value);
}

/** What a choice, or its counterpart of another style, is recognised by. */
const CHOICE_MEMBERS = ['index', 'delta', 'text', 'message', 'finish_reason'];

/**
 * Whether a value that is not a required member could be the content of another event: the `object` of this kind of body, a
 * list of choices, or an error.
 */
function looksLikeContent(value: unknown, object: string | undefined): boolean {
  if (typeof value === 'string') return value === object;
  if (Array.isArray(value)) {
    return value.some((item) => isObject(item) && CHOICE_MEMBERS.some((name) => Object.hasOwn(item, name)));
  }
  if (!isObject(value)) return false;
  return (
    typeof value['message'] === 'string' && (Object.hasOwn(value, 'type') || Object.hasOwn(value, 'code'))
  );
}

/** Whether a parsed value may be that of a member of the row that is not required. */
export function mayHold({ optional, others, object }: Row, name: string, value: unknown): boolean {
  const kind = optional !== undefined && Object.hasOwn(optional, name) ? optional[name] : undefined;
  if (value === null) return true;
  if (looksLikeContent(value, object)) return false;
  if (kind !== undefined) return kindCheck(kind)(value);
  return others === 'harmless' || (typeof value === 'object' && Object.keys(value).length === 0);
}

/** One spelling for all letter cases of a name, for decoders that ignore the case. */
const folded = (name: string): string => name.toLowerCase();

/** Names of members that nobody knows yet: no API has others, and some decoders fold or split them in ways of their own. */
const PLAUSIBLE_NAME = /^[\w.-]{1,256}$/;

/**
 * Whether the names of the sealed members may be those of that row: all required ones, no others where the row takes none, and
 * none that differs from a known name by letter case alone, for some clients ignore it.
 */
export function hasNames(row: Row, sealed: readonly string[], plain: ReadonlySet<string>): boolean {
  const { required, optional = {}, others } = row;
  if (!Object.keys(required).every((name) => sealed.includes(name))) return false;
  const known = new Set([...Object.keys(required), ...Object.keys(optional)]);
  const taken = new Set([...known, ...plain].map(folded));
  return sealed.every(
    (name) =>
      known.has(name) || (others !== undefined && PLAUSIBLE_NAME.test(name) && !taken.has(folded(name))),
  );
}
