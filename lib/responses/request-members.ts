/** The members of a Responses request: which are taken, and what becomes of each in chat and in the Response. */
import type { JsonKind } from '../pipeline/json/json-index.ts';
import { invalid, isSet, type JsonObject, objectAt, stringAt, unsupported } from './refusal.ts';

type Kind = 'string' | 'number' | 'boolean' | 'object' | 'array';

interface MemberRule {
  readonly kind: Kind;
  /** The member's name in chat; undefined: it stays here, or is translated below or in request.ts. */
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

/** Of more than one kind; request.ts translates them. */
const OTHERS = new Set(['input', 'tool_choice']);

/** The names of those that are taken. */
export const NAMES: readonly string[] = [...MEMBERS.keys(), ...OTHERS];

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

const kindOf = (kind: JsonKind): string => (kind === 'true' || kind === 'false' ? 'boolean' : kind);

/** Whether the member is set. Throws a RequestRefusal where it is not taken, or of another kind. */
export function isTaken(name: string, kind: JsonKind): boolean {
  const rule = MEMBERS.get(name);
  const isNull = kind === 'null';
  if (rule === undefined && !OTHERS.has(name) && !(isNull && REFUSED.has(name))) throw refused(name);
  if (isNull || rule === undefined || kindOf(kind) === rule.kind) return !isNull;
  throw invalid(name, `${rule.kind === 'array' || rule.kind === 'object' ? 'an' : 'a'} ${rule.kind}`);
}

/** Throws a RequestRefusal where a member that is taken asks for what the service does not do. */
export function demandSupported(members: ReadonlyMap<string, unknown>): void {
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

/** What the Response object repeats of the request, as JSON text without the braces. */
export function echoOf(members: ReadonlyMap<string, unknown>): string {
  const repeated = Object.entries(DEFAULTS).map(([name, value]) => [
    name,
    NOT_REPEATED.has(name) ? value : (members.get(name) ?? value),
  ]);
  return JSON.stringify({ ...Object.fromEntries(repeated), user: members.get('user') }).slice(1, -1);
}

/** The members of the chat request but for messages and tools. */
export function chatOf(members: ReadonlyMap<string, unknown>, logprobs: boolean): JsonObject {
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
