/** `POST /v1/responses` as a chat completion: the request (docs/protocol/responses.md). */
import { PrivatemodeError } from '../errors.ts';
import { type ByteChain, createByteChain } from '../pipeline/json/byte-chain.ts';
import { createJsonIndex, type JsonKind, type JsonVisitor } from '../pipeline/json/json-index.ts';
import { Messages } from './messages.ts';
import {
  invalid,
  isSet,
  type JsonObject,
  listAt,
  objectAt,
  RequestRefusal,
  stringAt,
  unsupported,
} from './refusal.ts';
import type { ResponseContext } from './response-object.ts';
import { Tools } from './tools.ts';

export interface TranslatedRequest {
  /** The chat completion request, as JSON. */
  readonly body: Buffer;
  readonly streaming: boolean;
  readonly context: ResponseContext;
  /** Types of the hosted tools that were left out. */
  readonly hosted: readonly string[];
}

type Kind = 'string' | 'number' | 'boolean' | 'object' | 'array';

interface MemberRule {
  readonly kind: Kind;
  /** The member's name in chat; undefined: it stays here, or request.ts translates it. */
  readonly chat?: string;
}

const same = (kind: Kind, ...names: string[]): [string, MemberRule][] =>
  names.map((name) => [name, { kind, chat: name }]);
const here = (kind: Kind, ...names: string[]): [string, MemberRule][] =>
  names.map((name) => [name, { kind }]);

/** Every member that is taken. An unknown one is refused, a null counts as absent. */
const MEMBERS: ReadonlyMap<string, MemberRule> = new Map([
  ...same('string', 'model', 'user', 'safety_identifier', 'service_tier', 'cache_salt'),
  ...same('boolean', 'stream', 'parallel_tool_calls'),
  ...same('number', 'temperature', 'top_p', 'top_logprobs'),
  ['max_output_tokens', { kind: 'number', chat: 'max_completion_tokens' }],
  ...here('string', 'instructions', 'prompt_cache_key', 'prompt_cache_retention', 'truncation'),
  ...here('boolean', 'store', 'background'),
  ...here(
    'object',
    'text',
    'reasoning',
    'metadata',
    'prompt_cache_options',
    'client_metadata',
    'stream_options',
  ),
  ...here('object', 'moderation'),
  ...here('array', 'tools', 'include'),
]);

/** Translated below, of more than one kind. */
const OTHERS = new Set(['input', 'tool_choice']);

const KEEP_ALL = 'Send the whole conversation as input; the service keeps nothing.';

/** What to do instead, by members that stand for something the service does not have. */
const REFUSED: ReadonlyMap<string, string> = new Map([
  ['previous_response_id', KEEP_ALL],
  ['conversation', KEEP_ALL],
  ['prompt', 'Send the text of the prompt as instructions or input.'],
  ['background', 'Leave it out, and read the response as it comes.'],
  ['truncation', 'Leave it out, and shorten the input yourself.'],
  ['context_management', 'Leave it out, and shorten the input yourself.'],
  ['max_tool_calls', 'Leave it out, and count the calls yourself.'],
  ['access_programs', 'Leave it out.'],
]);

const OTHER_REMEDY = 'Leave it out; docs/protocol/responses.md lists the members that are translated.';
/** Names of members are the application's; a longer or stranger one is not repeated. */
const QUOTABLE = /^\w{1,64}$/;

const refused = (name: string) => {
  const param = QUOTABLE.test(name) ? name : 'request';
  return unsupported(param, `the member ${param} is not supported`, REFUSED.get(name) ?? OTHER_REMEDY);
};

/** The words that the service knows, by those of the API. */
const EFFORTS: ReadonlyMap<unknown, string> = new Map([
  ['none', 'low'],
  ['minimal', 'low'],
  ['low', 'low'],
  ['medium', 'medium'],
  ['high', 'high'],
  ['xhigh', 'high'],
  ['max', 'high'],
]);

/** Bytes of one item, or of another member: it is read and written at once, and everybody else waits for that. */
const MOST_AT_ONCE = 8 * 1024 * 1024;
/** Objects, arrays and strings in it: these take the reader 20 ms, and 8 MiB of `{},` more than ten times as long. */
const MOST_VALUES = 200_000;
/** Bytes that are looked through, or delivered, at a time. */
const AT_A_TIME = 64 * 1024;
const NOTHING = Buffer.alloc(0);

/** Where in the body a value stands. */
interface Span {
  readonly start: number;
  readonly end: number;
}

const tooLarge = (param: string, what: string) =>
  new PrivatemodeError('body_too_large', `${param} ${what}`, {
    remedy: 'Send smaller texts and images, each in an item of its own.',
    api: { param, code: 'invalid_value' },
  });

/** The value there, which an index has found to be JSON. Throws body_too_large. */
function valueAt(param: string, chain: ByteChain, { start, end }: Span): unknown {
  if (end - start > MOST_AT_ONCE) throw tooLarge(param, `is larger than ${MOST_AT_ONCE} bytes`);
  return JSON.parse(chain.bytes(start, end).toString('utf8'));
}

/** Counts the values in a member, in `input` those of each item. Throws body_too_large. */
function createValueLimit(member: string): JsonVisitor {
  const around = member === 'input' ? 1 : 0;
  let depth = 0;
  let values = 0;
  const begin = (): void => {
    if (depth === around) values = 0;
    values += 1;
    if (values > MOST_VALUES) throw tooLarge(member, `has more than ${MOST_VALUES} values in one place`);
  };
  return {
    member,
    opened() {
      begin();
      depth += 1;
    },
    closed() {
      depth -= 1;
    },
    stringBegan() {
      begin();
      return false;
    },
    stringBytes: () => false,
    escaped: () => false,
    stringEnded() {},
  };
}

const kindOf = (kind: JsonKind): string => (kind === 'true' || kind === 'false' ? 'boolean' : kind);

/** Whether the member is set. Throws a RequestRefusal where it is not taken, or of another kind. */
function isTaken(name: string, kind: JsonKind): boolean {
  const rule = MEMBERS.get(name);
  const isNull = kind === 'null';
  if (rule === undefined && !OTHERS.has(name) && !(isNull && REFUSED.has(name))) throw refused(name);
  if (isNull || rule === undefined || kindOf(kind) === rule.kind) return !isNull;
  throw invalid(name, `${rule.kind === 'array' || rule.kind === 'object' ? 'an' : 'a'} ${rule.kind}`);
}

function demandSupported(members: ReadonlyMap<string, unknown>): void {
  if (members.get('background') === true) throw refused('background');
  const truncation = members.get('truncation');
  if (truncation !== undefined && truncation !== 'disabled') throw refused('truncation');
}

/** `response_format` of chat. */
function formatOf(format: unknown): JsonObject | undefined {
  if (!isSet(format)) return undefined;
  const { type, name, description, schema, strict } = objectAt('text.format', format);
  if (type === 'text') return undefined;
  if (type === 'json_object') return { type };
  if (type !== 'json_schema') throw invalid('text.format.type', '"text", "json_object" or "json_schema"');
  const json_schema = {
    name: stringAt('text.format.name', name),
    ...(typeof description === 'string' && { description }),
    schema: objectAt('text.format.schema', schema),
    ...(typeof strict === 'boolean' && { strict }),
  };
  return { type, json_schema };
}

function effortOf(effort: unknown): string | undefined {
  if (!isSet(effort)) return undefined;
  const known = EFFORTS.get(effort);
  if (known === undefined) throw invalid('reasoning.effort', '"low", "medium" or "high"');
  return known;
}

/** Members of the Response object that do not repeat the request, or where it says nothing. */
const DEFAULTS = {
  access_programs: null,
  background: false,
  conversation: null,
  instructions: null,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  moderation: null,
  parallel_tool_calls: true,
  previous_response_id: null,
  prompt: null,
  prompt_cache_key: null,
  prompt_cache_retention: null,
  reasoning: { effort: null, summary: null },
  safety_identifier: null,
  service_tier: 'default',
  store: false,
  temperature: 1,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_logprobs: 0,
  top_p: 1,
  truncation: 'disabled',
};
/** Nothing is stored, and what moderation asks for is not done. */
const NOT_REPEATED = new Set(['store', 'background', 'moderation']);

function echoOf(members: ReadonlyMap<string, unknown>): string {
  const repeated = Object.entries(DEFAULTS).map(([name, value]) => [
    name,
    NOT_REPEATED.has(name) ? value : (members.get(name) ?? value),
  ]);
  return JSON.stringify({ ...Object.fromEntries(repeated), user: members.get('user') }).slice(1, -1);
}

/** The members of the chat request but for messages and tools. */
function chatOf(members: ReadonlyMap<string, unknown>, logprobs: boolean): JsonObject {
  const { format } = objectAt('text', members.get('text') ?? {});
  const { effort } = objectAt('reasoning', members.get('reasoning') ?? {});
  const chat: Record<string, unknown> = {};
  for (const [name, { chat: chatName }] of MEMBERS) {
    if (chatName !== undefined && members.has(name)) chat[chatName] = members.get(name);
  }
  if (members.get('stream') === true) chat['stream_options'] = { include_usage: true };
  if (logprobs) chat['logprobs'] = true;
  const responseFormat = formatOf(format);
  if (responseFormat !== undefined) chat['response_format'] = responseFormat;
  const reasoningEffort = effortOf(effort);
  if (reasoningEffort !== undefined) chat['reasoning_effort'] = reasoningEffort;
  return chat;
}

/**
 * Takes the body of a request while it arrives, and translates it item by item. Throws invalid_json, duplicate_member,
 * unsupported_member_name and body_too_large, or a RequestRefusal that names the place. Only members that are named above can leave: what
 * is not translated stays here, ids of the client and its metadata among it.
 */
export class RequestTranslation {
  readonly #chain = createByteChain();
  readonly #index = createJsonIndex({ visitors: [...MEMBERS.keys(), ...OTHERS].map(createValueLimit) });
  readonly #members = new Map<string, unknown>(); // that are set, but for an `input` of items
  readonly #tools = new Tools();
  readonly #messages = new Messages(this.#tools);
  #text = ''; // of messages, not delivered yet
  #written = 0; // messages

  feed(chunk: Uint8Array): void {
    this.#chain.push(chunk);
    this.#index.feed(chunk);
  }

  /**
   * The chat request as JSON, in pieces; what it returns is said of the whole. To be called once, after the last chunk. Between two
   * pieces, of which some are empty, others may have their turn: none takes longer than one item does.
   */
  *pieces(): Generator<Buffer, Omit<TranslatedRequest, 'body'>> {
    try {
      return yield* this.#translate();
    } catch (thrown) {
      // The JSON writer of the engine recurses; its reader does not.
      if (!(thrown instanceof RangeError)) throw thrown;
      throw new PrivatemodeError('invalid_json', 'the request body is nested too deeply');
    }
  }

  *#translate(): ReturnType<RequestTranslation['pieces']> {
    const members = this.#members;
    const tools = this.#tools;
    const items = yield* this.#readMembers();
    demandSupported(members);
    if (members.has('tools')) tools.add('tools', members.get('tools'));
    const include = new Set(members.has('include') ? listAt('include', members.get('include')) : []);
    const logprobs = members.has('top_logprobs') || include.has('message.output_text.logprobs');

    const head = JSON.stringify(chatOf(members, logprobs)).slice(0, -1);
    yield* slices(`${head}${head === '{' ? '' : ','}"messages":[`);
    yield* this.#readInput(items);
    const chosen = JSON.stringify(tools.chosen(members.get('tool_choice'))).slice(1);
    yield* slices(`]${chosen === '}' ? '' : ','}${chosen}`);
    return {
      streaming: members.get('stream') === true,
      context: {
        model: (members.get('model') ?? '') as string,
        echo: echoOf(members),
        origins: tools.origins,
        sealsReasoning: include.has('reasoning.encrypted_content'),
        logprobs,
      },
      hosted: [...tools.hosted],
    };
  }

  /** Reads the members but for an `input` of items, and returns the place of that. */
  *#readMembers(): Generator<Buffer, Span | undefined> {
    let items: Span | undefined;
    for (const { name, kind, start, end } of this.#index.finish()) {
      if (!isTaken(name, kind)) continue;
      if (name === 'input' && kind === 'array') items = { start, end };
      else this.#members.set(name, valueAt(name, this.#chain, { start, end }));
      yield NOTHING;
    }
    return items;
  }

  *#readInput(items: Span | undefined): Generator<Buffer, void> {
    const messages = this.#messages;
    const { instructions, input } = Object.fromEntries(this.#members);
    if (typeof instructions === 'string' && instructions !== '') messages.instruct(instructions);
    if (typeof input === 'string') messages.add('input', { role: 'user', content: input });
    else if (isSet(input)) throw invalid('input', 'a string or an array');
    if (items !== undefined) yield* this.#readItems(items);
    yield* this.#write(true);
    if (this.#written > 0) return;
    throw new RequestRefusal(
      'missing_required_parameter',
      'input',
      'the request has no input',
      'Send the conversation as input.',
    );
  }

  *#readItems({ start, end }: Span): Generator<Buffer, void> {
    const index = createJsonIndex({ arrays: 'any' });
    let at = 0;
    for (const bytes of this.#chain.slices(start, end).flatMap(parts)) {
      index.feed(bytes);
      yield NOTHING;
      for (; at < index.members.length; at++) {
        const item = index.members[at] as Span;
        const place = `input[${at}]`;
        const value = valueAt(place, this.#chain, { start: start + item.start, end: start + item.end });
        this.#messages.add(place, objectAt(place, value));
        yield NOTHING;
        yield* this.#write(false);
      }
    }
  }

  /** The messages that are complete; with `ended`, all that were not written yet. */
  *#write(ended: boolean): Generator<Buffer, void> {
    for (const message of this.#messages.take(ended)) {
      this.#text += `${this.#written === 0 ? '' : ','}${JSON.stringify(message)}`;
      this.#written += 1;
    }
    if (!ended && this.#text.length < AT_A_TIME) return;
    yield* slices(this.#text);
    this.#text = '';
  }
}

function parts(bytes: Uint8Array): Uint8Array[] {
  const found: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += AT_A_TIME) found.push(bytes.subarray(at, at + AT_A_TIME));
  return found;
}

const slices = (text: string): Buffer[] => parts(Buffer.from(text)) as Buffer[];

/** Translates a body that is there, at once. Throws as RequestTranslation does. */
export function translateRequest(body: Uint8Array): TranslatedRequest {
  const translation = new RequestTranslation();
  translation.feed(body);
  const pieces = translation.pieces();
  const written: Buffer[] = [];
  for (;;) {
    const { done, value } = pieces.next();
    if (done) return { ...value, body: Buffer.concat(written) };
    written.push(value);
  }
}
