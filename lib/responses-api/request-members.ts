/**
 * Which members of a Responses request are taken, and what becomes of each in the chat request and in the
 * Response object.
 */
import type { Member } from '../json/scan.ts';
import type { JsonKind } from '../json/tokens.ts';
import {
  invalid,
  isSet,
  listAt,
  objectAt,
  type PlainObject,
  type RequestRefusal,
  stringAt,
  unsupported,
} from './request-refusal.ts';

type Kind = 'string' | 'number' | 'boolean' | 'object' | 'array';

interface MemberRule {
  readonly kind: Kind;
  /**
   * The member's name in the chat request. Undefined: code below or in translate-request.ts translates the
   * member, or the member stays in the proxy.
   */
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
  ...same('number', 'temperature', 'top_p'),
  ['max_output_tokens', { kind: 'number', chat: 'max_completion_tokens' }],
  ...here('string', 'instructions', 'prompt_cache_key', 'prompt_cache_retention', 'truncation'),
  ...here('boolean', 'store', 'background'),
  ...here('object', 'text', 'reasoning', 'metadata', 'client_metadata', 'moderation'),
  ...here('object', 'stream_options', 'prompt_cache_options'),
  ...here('array', 'tools', 'include'),
  ...here('number', 'top_logprobs'),
]);

/** Members whose values may be of more than one kind; translate-request.ts translates them. */
const OTHERS = new Set(['input', 'tool_choice']);

const KEEP_ALL = 'Send the whole conversation as input; the service keeps nothing.';

const NO_LOGPROBS = 'Leave it out, or ask POST /v1/chat/completions, which has log probabilities.';

/** What a client should do instead, by the member that asks for something the service does not have. */
const REFUSED: ReadonlyMap<string, string> = new Map([
  ['previous_response_id', KEEP_ALL],
  ['conversation', KEEP_ALL],
  ['prompt', 'Send the text of the prompt as instructions or input.'],
  ['background', 'Leave it out, and read the response as it comes.'],
  ['truncation', 'Leave it out, and shorten the input yourself.'],
  ['context_management', 'Leave it out, and shorten the input yourself.'],
  ['max_tool_calls', 'Leave it out, and count the calls yourself.'],
  ['access_programs', 'Leave it out.'],
  ['top_logprobs', NO_LOGPROBS],
  ['include', NO_LOGPROBS],
]);

const OTHER_REMEDY = 'Leave it out: it has no translation.';
/**
 * Names of members that an error may repeat. They come from the application, so a longer or stranger one is
 * not repeated.
 */
const QUOTABLE = /^\w{1,64}$/;

function refused(name: string): RequestRefusal {
  const isQuotable = QUOTABLE.test(name);
  const which = isQuotable ? `the member ${name}` : 'a member with an unusual name';
  const remedy = REFUSED.get(name) ?? OTHER_REMEDY;
  return unsupported(isQuotable ? name : 'request', `${which} is not supported`, remedy);
}

/** The service's words for reasoning effort, by those of the API. */
const EFFORTS: ReadonlyMap<unknown, string> = new Map([
  ['none', 'low'],
  ['minimal', 'low'],
  ['low', 'low'],
  ['medium', 'medium'],
  ['high', 'high'],
  ['xhigh', 'high'],
  ['max', 'high'],
]);

const kindOf = (kind: JsonKind): string => (kind === 'true' || kind === 'false' ? 'boolean' : kind);

/**
 * Whether the member is set; null counts as absent. Throws a RequestRefusal if the member is not taken, or if
 * its value is of another kind.
 */
export function isTaken({ name, kind }: Member): boolean {
  const rule = MEMBERS.get(name);
  const isNull = kind === 'null';
  if (rule === undefined && !OTHERS.has(name) && !(isNull && REFUSED.has(name))) throw refused(name);
  if (isNull || rule === undefined || kindOf(kind) === rule.kind) return !isNull;
  throw invalid(name, `${rule.kind === 'array' || rule.kind === 'object' ? 'an' : 'a'} ${rule.kind}`);
}

/** Throws a RequestRefusal if a member that may be there asks for something that the service does not do. */
export function demandSupported(members: ReadonlyMap<string, unknown>): void {
  if (members.get('background') === true) throw refused('background');
  if ((members.get('truncation') ?? 'disabled') !== 'disabled') throw refused('truncation');
  if ((members.get('top_logprobs') ?? 0) !== 0) throw refused('top_logprobs');
  const include = listAt('include', members.get('include') ?? []);
  if (include.includes('message.output_text.logprobs')) throw refused('include');
}

/** Chat's `response_format`; undefined for plain text. */
function formatOf(format: unknown): PlainObject | undefined {
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

/** Members of the Response object that the request does not set, or that never repeat it (NOT_REPEATED). */
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
/**
 * Members that the Response object shows with their defaults whatever the request says: nothing is stored,
 * and what `moderation` asks for is not done.
 */
const NOT_REPEATED = new Set(['store', 'background', 'moderation']);

/** The members of the Response object that repeat the request or have defaults. */
export function echoOf(members: ReadonlyMap<string, unknown>): PlainObject {
  const echo: Record<string, unknown> = {};
  for (const [name, value] of Object.entries({ ...DEFAULTS, user: undefined })) {
    echo[name] = (NOT_REPEATED.has(name) ? undefined : members.get(name)) ?? value;
  }
  return echo;
}

/**
 * Throws a RequestRefusal for a number that JSON readers do not all read alike, which is not finite or an
 * integer beyond 2^53, and for a limit of tokens that is not an integer from 0.
 */
export function demandExact(name: string, value: unknown): void {
  if (typeof value !== 'number') return;
  const isExact = Number.isFinite(value) && (Number.isSafeInteger(value) || !Number.isInteger(value));
  if (!isExact) throw invalid(name, 'a number that has an exact place among 64-bit floating-point numbers');
  if (name === 'max_output_tokens' && !(Number.isInteger(value) && value >= 0))
    throw invalid(name, 'an integer from 0');
}

/** The members of the chat request, except messages, tools and `tool_choice`. */
export function chatOf(members: ReadonlyMap<string, unknown>): PlainObject {
  const { format } = objectAt('text', members.get('text') ?? {});
  const { effort } = objectAt('reasoning', members.get('reasoning') ?? {});
  const chat: Record<string, unknown> = {};
  for (const [name, { chat: chatName }] of MEMBERS) {
    if (chatName !== undefined && members.has(name)) chat[chatName] = members.get(name);
  }
  if (members.get('stream') === true) chat['stream_options'] = { include_usage: true };
  const responseFormat = formatOf(format);
  if (responseFormat !== undefined) chat['response_format'] = responseFormat;
  if (!isSet(effort)) return chat;
  const known = EFFORTS.get(effort);
  if (known === undefined) throw invalid('reasoning.effort', '"low", "medium" or "high"');
  return { ...chat, reasoning_effort: known };
}
