/** `POST /v1/responses` as a chat completion: the request (docs/protocol/responses.md). */
import { PrivatemodeError } from '../errors.ts';
import { Messages } from './messages.ts';
import {
  invalid,
  isObject,
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

const kindOf = (value: unknown): string => (Array.isArray(value) ? 'array' : typeof value);

/** The members that are set, each of its kind. */
function membersOf(request: JsonObject): Map<string, unknown> {
  const members = new Map<string, unknown>();
  for (const [name, value] of Object.entries(request)) {
    const rule = MEMBERS.get(name);
    if (rule === undefined && !OTHERS.has(name) && (value !== null || !REFUSED.has(name)))
      throw refused(name);
    if (value === null) continue;
    if (rule !== undefined && kindOf(value) !== rule.kind) {
      throw invalid(name, `${rule.kind === 'array' || rule.kind === 'object' ? 'an' : 'a'} ${rule.kind}`);
    }
    members.set(name, value);
  }
  if (members.get('background') === true) throw refused('background');
  const truncation = members.get('truncation');
  if (truncation !== undefined && truncation !== 'disabled') throw refused('truncation');
  return members;
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

function messagesOf(members: ReadonlyMap<string, unknown>, tools: Tools): object[] {
  const messages = new Messages(tools);
  const instructions = members.get('instructions');
  if (typeof instructions === 'string' && instructions !== '') messages.instruct(instructions);
  const input = members.get('input') ?? [];
  if (typeof input === 'string') messages.add('input', { role: 'user', content: input });
  else {
    for (const [at, item] of listAt('input', input).entries()) {
      messages.add(`input[${at}]`, objectAt(`input[${at}]`, item));
    }
  }
  const all = messages.all();
  if (all.length > 0) return all;
  throw new RequestRefusal(
    'missing_required_parameter',
    'input',
    'the request has no input',
    'Send the conversation as input.',
  );
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

function translate(request: JsonObject): TranslatedRequest {
  const members = membersOf(request);
  const tools = new Tools();
  if (members.has('tools')) tools.add('tools', members.get('tools'));
  const messages = messagesOf(members, tools);
  const include = new Set(members.has('include') ? listAt('include', members.get('include')) : []);
  const logprobs = members.has('top_logprobs') || include.has('message.output_text.logprobs');
  const { format } = objectAt('text', members.get('text') ?? {});
  const { effort } = objectAt('reasoning', members.get('reasoning') ?? {});
  const streaming = members.get('stream') === true;

  const chat: Record<string, unknown> = {};
  for (const [name, { chat: chatName }] of MEMBERS) {
    if (chatName !== undefined && members.has(name)) chat[chatName] = members.get(name);
  }
  if (streaming) chat['stream_options'] = { include_usage: true };
  if (logprobs) chat['logprobs'] = true;
  const responseFormat = formatOf(format);
  if (responseFormat !== undefined) chat['response_format'] = responseFormat;
  const reasoningEffort = effortOf(effort);
  if (reasoningEffort !== undefined) chat['reasoning_effort'] = reasoningEffort;
  Object.assign(chat, { messages }, tools.chosen(members.get('tool_choice')));
  return {
    body: Buffer.from(JSON.stringify(chat)),
    streaming,
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

/**
 * Translates the body of a request. Throws invalid_json, or a RequestRefusal that names the place. Only members that are named above
 * can leave: what is not translated stays here, ids of the client and its metadata among it. Of a repeated member the last counts,
 * and it alone leaves.
 */
export function translateRequest(body: Uint8Array): TranslatedRequest {
  let request: unknown;
  try {
    request = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw new PrivatemodeError('invalid_json', 'the request body is not JSON');
  }
  if (!isObject(request)) throw new PrivatemodeError('invalid_json', 'the request body is not a JSON object');
  try {
    return translate(request);
  } catch (thrown) {
    // The JSON writer of the engine recurses; its reader does not.
    if (thrown instanceof RangeError)
      throw new PrivatemodeError('invalid_json', 'the request body is nested too deeply');
    throw thrown;
  }
}
