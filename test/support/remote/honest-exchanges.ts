/**
 * Exchanges that are attacked and recorded: transcripts under names of their own, one for each shape that the
 * API has, and the part of each that a client of the API reads.
 */
import { PLAIN_MEMBERS } from './plain-members.ts';
import { choicesOf } from './transcripts/grammar.ts';
import { type EndpointName, type Members, transcriptOf } from './transcripts/transcript.ts';

export interface HonestExchange {
  /** It begins with the endpoint. */
  readonly name: string;
  readonly api: EndpointName;
  /**
   * Members of the request, or fields of its form; the model server knows the answer by `model`, which is the
   * name.
   */
  readonly request: Members;
  /** How many choices the request asks for: `n` times the number of prompts. */
  readonly choices: number;
  readonly format?: 'json' | 'verbose_json';
  /** Of a stream, without `[DONE]`. */
  readonly events?: readonly Members[];
  /** Of a whole answer. */
  readonly status?: number;
  readonly body?: unknown;
}

const { C, M, E, T, R, MR, TR, NONE } = PLAIN_MEMBERS;
type Plain = Readonly<Record<'request' | 'response', readonly string[]>>;
/** The members that are plain in requests and responses. */
export const PLAIN: Readonly<Record<EndpointName, Plain>> = {
  chat: { request: [...C], response: [...R] },
  completions: { request: [...C], response: [...R] },
  messages: { request: [...M], response: [...MR] },
  embeddings: { request: [...E], response: [...R] },
  transcription: { request: [...T], response: [...TR] },
  unstructured: { request: [...NONE], response: [...NONE] },
};

const FORM = { language: 'en', prompt: 'spoken', response_format: 'json' };
const VERBOSE = { ...FORM, response_format: 'verbose_json' };
const DOCUMENT = { document: 'pages' };

/**
 * The name of each exchange, the transcript that it is, and what its request holds besides. The members that
 * the attacks name are those of that version.
 */
const SHAPES: readonly (readonly [name: string, transcript: string, asks?: Members])[] = [
  ['chat-stream', '0.33: plain text'],
  ['chat-stream-2', '0.33: two choices, interleaved'],
  ['chat-stream-tools', '0.20: two tools, each in several pieces'],
  ['chat-stream-error', '0.33: an error after content'],
  ['chat-stream-error-first', '0.20: an error first'],
  ['chat-stream-additions', '0.33: every member that may stand beside the choices'],
  ['chat-whole', '0.20: a whole answer'],
  ['chat-whole-2', '0.20: a whole answer of two choices, under the first served name'],
  ['chat-error', '0.20: refused with an object'],

  ['completions-stream', '0.33: plain text'],
  ['completions-stream-batch', '0.33: two prompts of token numbers, one after the other'],
  ['completions-whole', '0.20: a whole answer'],
  ['completions-whole-batch', '0.20: a whole answer to three prompts of two outputs each'],

  ['transcription-stream', '0.20: two stretches of audio, each with its finish', FORM],
  ['transcription-whole', '0.20: a whole transcript, asked for as json', FORM],
  ['transcription-verbose', '0.20: a whole transcript with segments', VERBOSE],
  ['transcription-error', '0.20: refused with an object', FORM],

  ['messages-stream', '0.33: a ping, thinking with its signature, then text'],
  ['messages-stream-tool', '0.33: text, then two tools'],
  ['messages-stream-error', '0.26: an error after content'],
  ['messages-stream-empty', '0.33: no block, and context management of null'],
  ['messages-whole', '0.20: a whole answer'],
  ['messages-whole-stopped', '0.33: a whole answer that a text stopped which reads like a reason'],
  ['messages-error', '0.20: refused in its own shape'],

  ['embeddings-whole', '0.20: several'],
  ['unstructured-whole', '0.20: more elements than have one digit', DOCUMENT],
  ['unstructured-empty', '0.20: an empty file', DOCUMENT],
  ['unstructured-files', '0.20: the elements of two files', DOCUMENT],
  ['unstructured-error', '0.20: refused with a list of details', DOCUMENT],
];

/** What tells another run of a request apart from that of the transcript. */
export interface Run {
  readonly created?: number;
  readonly model?: string;
  readonly id?: string;
  /** Goes in front of every text. */
  readonly says?: string;
}

const TEXTS: ReadonlySet<string> = new Set(['content', 'text', 'thinking']);

/** The same value as that run has it. */
function inRun(value: unknown, run: Run): unknown {
  const { says = '', ...constants } = run;
  if (Array.isArray(value)) return value.map((each) => inRun(each, run));
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).map(([name, member]) => {
    if (Object.hasOwn(constants, name)) return [name, constants[name as keyof typeof constants]];
    const isText = TEXTS.has(name) && typeof member === 'string' && member !== '';
    return [name, isText ? `${says}${member}` : inRun(member, run)];
  });
  return Object.fromEntries(members);
}

/** Every shape of response, as that run of the model server gives it. */
export const honestExchanges = (run: Run = {}): readonly HonestExchange[] =>
  SHAPES.map(([name, title, asks = {}]) => {
    const api = name.split('-', 1)[0] as EndpointName;
    const { request: members, response } = transcriptOf(`${api} ${title}`);
    const request: Members = { ...members, model: name, ...asks };
    const format = api === 'transcription' ? { format: request['response_format'] as 'json' } : {};
    const asked = { name, api, choices: choicesOf(api, request), ...format };
    if (response.kind === 'whole') {
      return { ...asked, request, status: response.status, body: inRun(response.body, run) };
    }
    const events = response.events.flatMap(({ data }) => (data === '[DONE]' ? [] : [data]));
    return { ...asked, request: { ...request, stream: true }, events: inRun(events, run) as Members[] };
  });

const OPENAI_CHUNK = ['choices', 'created', 'model', 'object'];
const EVENT_MEMBERS: Readonly<Partial<Record<EndpointName, readonly string[]>>> = {
  chat: OPENAI_CHUNK,
  completions: OPENAI_CHUNK,
  transcription: [...OPENAI_CHUNK, 'id'],
  messages: ['type', 'message', 'index', 'content_block', 'delta'],
};
const WHOLE_MEMBERS: Readonly<Record<EndpointName, readonly string[]>> = {
  chat: OPENAI_CHUNK,
  completions: OPENAI_CHUNK,
  embeddings: ['data', 'model', 'object'],
  messages: ['content', 'model', 'role', 'stop_reason'],
  transcription: ['language', 'segments', 'text', 'words'],
  unstructured: [],
};

const picked = (value: Members, names: readonly string[]): Members =>
  Object.fromEntries(names.filter((name) => Object.hasOwn(value, name)).map((name) => [name, value[name]]));

/**
 * What a client reads of an item of a stream; undefined where it reads nothing: pings, and chunks that carry
 * usage alone. An error is read as that, whatever stands beside it.
 */
export function essenceOfEvent(api: EndpointName, item: Members): Members | undefined {
  if ((item['error'] ?? null) !== null) return { error: item['error'] };
  if (item['type'] === 'ping' && api === 'messages') return undefined;
  const { choices } = item;
  if (api !== 'messages' && Array.isArray(choices) && choices.length === 0) return undefined;
  return picked(item, EVENT_MEMBERS[api] ?? []);
}

/** What a client reads of a whole answer. */
export function essenceOfBody(api: EndpointName, body: unknown): unknown {
  return Array.isArray(body) ? body : picked(body as Members, WHOLE_MEMBERS[api]);
}

/** What a client reads of the whole exchange: the items of its stream, or its body as the only one. */
export const essenceOf = ({ api, events, body }: HonestExchange): unknown[] =>
  events === undefined
    ? [essenceOfBody(api, body)]
    : events.map((event) => essenceOfEvent(api, event)).filter((item) => item !== undefined);

/** The elements of a list in the order of their sequence: that of their index as text. */
export const elementsInOrder = (elements: readonly unknown[]): unknown[] =>
  Object.keys(elements)
    .sort((a, b) => (a < b ? -1 : 1))
    .map((index) => elements[Number(index)]);
