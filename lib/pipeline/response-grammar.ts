/**
 * What an honest response consists of, in one table by endpoint and event (docs/protocol/grammar.md). Sealed
 * values are authenticated and numbered. Names of members, types of events and plain members are not
 * authenticated, so a gateway could hide content under a name that clients skip, or pass one member off as
 * another. To hide an event, a gateway must put each message of that event somewhere else. So it is enough
 * that each event has one message which is refused everywhere else.
 */
import type { EndpointId } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { isObject, type Members, own } from './decrypter.ts';
import { blocksOrder, chunksOrder, type EventOrder } from './event-order.ts';
import { type Layout, type PlainMembers, type SealedObject, sealedReader } from './sealed-json.ts';

type Is<T = unknown> = (value: T) => boolean;

function objectOf(is: Is<Members>): Is {
  return (value) => isObject(value) && is(value);
}
function listOf(is: Is<Members>): Is {
  return (value) => Array.isArray(value) && value.every(objectOf(is));
}
const isText = (value: unknown): value is string => typeof value === 'string';
const endsInDelta = ({ type }: Members): boolean => isText(type) && type.endsWith('_delta');

/** The kinds of sealed values: JSON types, and kinds of content. Kinds of content differ in their members. */
const KINDS = {
  string: isText,
  'string?': (value) => isText(value) || value === null,
  integer: Number.isInteger,
  object: isObject,
  array: Array.isArray,
  'array?': (value) => Array.isArray(value) || value === null,
  // In a whole body every choice is finished, in chunks perhaps not. A gateway could ask for either form.
  chat_choices: listOf(({ message, finish_reason }) => isObject(message) && isText(finish_reason)),
  text_choices: listOf(({ text, finish_reason }) => isText(text) && isText(finish_reason)),
  chat_deltas: listOf(({ delta }) => isObject(delta)),
  text_deltas: listOf(({ text }) => isText(text)),
  error: objectOf(({ message }) => isText(message)),
  blocks: listOf(({ type }) => isText(type)),
  // `id`, `model` and `content` tell a message from a block's delta, which a gateway could put in its place.
  message: objectOf(
    ({ id, model, content }) => isText(id) && isText(model) && Array.isArray(content) && content.length === 0,
  ),
  block: objectOf((block) => isText(block['type']) && !endsInDelta(block)),
  block_delta: objectOf((delta) => endsInDelta(delta) && !Object.hasOwn(delta, 'stop_reason')),
  message_delta: objectOf((delta) => Object.hasOwn(delta, 'stop_reason') && !isText(delta['type'])),
} satisfies Members<Is>;

type Kinds = Members<keyof typeof KINDS>;

/** Whether a value is an element of a document. An error lacks two of `type`, `element_id` and `text`. */
export const isElement = objectOf(({ type, element_id, text }) => [type, element_id, text].every(isText));

/** The sealed members of one event or whole body. */
export interface GrammarRow {
  readonly required: Kinds; // each of these members must occur once
  readonly optional?: Kinds; // each of these members may occur, and may be null
  /** The value of `object`. If set, all events of a stream agree in all required members except `choices`. */
  readonly object?: string;
  readonly type?: string; // the value of the plain member `type`, in a whole body
  /** Which other members pass. `harmless`: all that look unlike content. `empty`: null, `[]` and `{}`. */
  readonly others?: 'harmless' | 'empty';
}

export interface ResponseGrammar {
  readonly plain: PlainMembers;
  readonly read: (text: string) => SealedObject; // reads the outer JSON of an event or of a whole body
  readonly order?: (choices: number) => EventOrder; // the order of events; if undefined, there are no streams
  /** The events by type. The type is the member `type` in the Messages API, elsewhere `chunk` or `error`. */
  readonly events?: Members<GrammarRow>;
  readonly whole?: GrammarRow; // the row of a success; if undefined, a success is an array of elements
  readonly formats?: Members<GrammarRow>; // the row in place of `whole` for a requested `response_format`
}

const withPlain = (plain: PlainMembers) => ({ plain, read: sealedReader(plain) });
const OPENAI = withPlain({ id: ['string', 'null'], usage: ['object', 'null'] });

const ofChoices = (object: string, choices: Kinds[string], more: Kinds = {}): GrammarRow => ({
  object,
  required: { created: 'integer', model: 'string', object: 'string', choices, ...more },
  optional: {
    ec_transfer_params: 'object',
    kv_transfer_params: 'object',
    metrics: 'object',
    prompt_logprobs: 'array',
    prompt_text: 'string',
    prompt_token_ids: 'array',
    service_tier: 'string',
    system_fingerprint: 'string',
  },
  others: 'harmless',
});

/** The events of a stream of chunks. An error of the model server is alone in its event. */
const ofChunks = (chunk: GrammarRow) => ({ chunk, error: harmless({ error: 'error' }) });
const harmless = (required: Kinds): GrammarRow => ({ required, others: 'harmless' });

const CHAT: ResponseGrammar = {
  ...OPENAI,
  order: chunksOrder,
  events: ofChunks(ofChoices('chat.completion.chunk', 'chat_deltas')),
  whole: ofChoices('chat.completion', 'chat_choices'),
};

const GRAMMAR: Readonly<Partial<Record<EndpointId, ResponseGrammar>>> = {
  chat: CHAT,
  responses: CHAT, // a response of the Responses API is checked as a chat, then translated
  completions: {
    ...OPENAI,
    order: chunksOrder,
    events: ofChunks(ofChoices('text_completion', 'text_deltas')),
    whole: ofChoices('text_completion', 'text_choices'),
  },
  messages: {
    ...withPlain({ ...OPENAI.plain, type: ['string'] }),
    order: blocksOrder,
    events: {
      message_start: { required: { message: 'message' } },
      content_block_start: { required: { content_block: 'block', index: 'integer' } },
      content_block_delta: { required: { delta: 'block_delta', index: 'integer' } },
      content_block_stop: { required: { index: 'integer' } },
      message_delta: { required: { delta: 'message_delta' }, optional: { context_management: 'object' } },
      message_stop: { required: {} },
      ping: { required: {} },
      error: { required: { error: 'error' } },
    },
    whole: {
      type: 'message',
      // A message without a stop_reason is unfinished.
      required: { content: 'blocks', model: 'string', role: 'string', stop_reason: 'string' },
      optional: { ec_transfer_params: 'object', kv_transfer_params: 'object', stop_sequence: 'string' },
      // Other members must be empty, or a gateway could rename stop_reason and pass stop_sequence off as it.
      others: 'empty',
    },
  },
  embeddings: {
    ...OPENAI,
    whole: {
      ...harmless({ data: 'array', model: 'string?', object: 'string' }),
      object: 'list',
      optional: { created: 'integer' },
    },
  },
  transcription: {
    ...withPlain({ duration: ['string', 'number', 'null'], usage: ['object', 'null'] }),
    order: (choices) => chunksOrder(choices, true),
    events: ofChunks(ofChoices('transcription.chunk', 'chat_deltas', { id: 'string' })),
    whole: harmless({ text: 'string' }),
    formats: {
      verbose_json: harmless({ language: 'string', segments: 'array?', text: 'string', words: 'array?' }),
      diarized_json: harmless({ segments: 'array', task: 'string', text: 'string' }),
    },
  },
  unstructured: withPlain({}),
};

/** The grammar of an endpoint's encrypted responses. Throws `internal` if the endpoint has no grammar. */
export function grammarOf({ id }: { readonly id: EndpointId }): ResponseGrammar {
  const grammar = GRAMMAR[id];
  if (grammar !== undefined) return grammar;
  throw new PrivatemodeError('internal', 'an encrypted response of an endpoint without a grammar');
}

/** Members that show that a value is a choice, or what another API style has in place of a choice. */
const CHOICE_MEMBERS = ['index', 'delta', 'text', 'message', 'finish_reason'];

/** Whether a value may be content of another kind: this event's `object`, a list of choices, an error. */
function looksLikeContent(value: unknown, object: string | undefined): boolean {
  if (typeof value === 'string') return value === object;
  if (Array.isArray(value)) {
    return value.some((item) => isObject(item) && CHOICE_MEMBERS.some((name) => Object.hasOwn(item, name)));
  }
  const isError = isObject(value) && isText(value['message']);
  return isError && (Object.hasOwn(value, 'type') || Object.hasOwn(value, 'code'));
}

export function fitsRow(row: GrammarRow, name: string, value: unknown): boolean {
  const { required, optional = {}, others, object } = row;
  const kind = own(required, name);
  if (kind !== undefined) return KINDS[kind](value) && (name !== 'object' || value === object);
  if (value === null) return true;
  // A success reports no error: a member `error` beside content may only be null.
  if (name.toLowerCase() === 'error' || looksLikeContent(value, object)) return false;
  const known = own(optional, name);
  if (known !== undefined) return KINDS[known](value);
  return others === 'harmless' || (typeof value === 'object' && Object.keys(value).length === 0);
}

export function hasNames(row: GrammarRow, layout: Layout, plain: PlainMembers): boolean {
  if (layout.row === row) return true; // this layout is known to fit the row
  const known = Object.keys({ ...row.required, ...row.optional });
  // Names count as taken in any letter case, because some clients ignore the case.
  const taken = [...known, ...Object.keys(plain)].map((name) => name.toLowerCase());
  const names = layout.sealed.map((at) => layout.names[at]!);
  const mayBe = (name: string): boolean =>
    known.includes(name) || (row.others !== undefined && !taken.includes(name.toLowerCase()));
  const has = Object.keys(row.required).every((name) => names.includes(name)) && names.every(mayBe);
  if (has) layout.row = row;
  return has;
}
