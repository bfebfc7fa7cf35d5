/**
 * Which members of a Responses request are accepted, and what becomes of each in the chat request and in the
 * Response object.
 */
import type { Member } from '../json/scan.ts';
import { Placed, type PlainObject, RequestRefusal } from './request-refusal.ts';

/** The JSON kind of every accepted member. Unknown members are refused; null counts as absent. */
const KINDS: ReadonlyMap<string, string> = new Map(
  [
    ['string', 'model user safety_identifier service_tier cache_salt'],
    ['string', 'instructions prompt_cache_key prompt_cache_retention truncation'],
    ['boolean', 'stream parallel_tool_calls store background'],
    ['number', 'temperature top_p max_output_tokens top_logprobs'],
    ['object', 'text reasoning metadata client_metadata moderation stream_options prompt_cache_options'],
    ['array', 'tools include'],
    ['any', 'input tool_choice'],
  ].flatMap(([kind = '', names = '']) => names.split(' ').map((name): [string, string] => [name, kind])),
);

/** Members that keep their names in the chat request. All others are translated or stay in the proxy. */
const SAME = [
  ...['model', 'user', 'safety_identifier', 'service_tier', 'cache_salt'],
  ...['stream', 'parallel_tool_calls', 'temperature', 'top_p'],
];

const KEEP_ALL = 'Send the whole conversation as input; the service keeps nothing.';
const SHORTEN = 'Leave it out, and shorten the input yourself.';
const NO_LOGPROBS = 'Leave it out, or ask POST /v1/chat/completions, which has log probabilities.';
/** The remedy for each member that asks for something that the service does not have. */
const REFUSED: ReadonlyMap<string, string> = new Map([
  ['previous_response_id', KEEP_ALL],
  ['conversation', KEEP_ALL],
  ['prompt', 'Send the text of the prompt as instructions or input.'],
  ['background', 'Leave it out, and read the response as it comes.'],
  ['truncation', SHORTEN],
  ['context_management', SHORTEN],
  ['max_tool_calls', 'Leave it out, and count the calls yourself.'],
  ['access_programs', 'Leave it out.'],
  ['top_logprobs', NO_LOGPROBS],
  ['include', NO_LOGPROBS],
]);

/**
 * Names of members that an error may quote. The application chose the names, so long and unusual names are
 * not quoted.
 */
const QUOTABLE = /^\w{1,64}$/;

function refused(name: string): RequestRefusal {
  const isQuotable = QUOTABLE.test(name);
  const what = `${isQuotable ? `the member ${name}` : 'a member with an unusual name'} is not supported`;
  const remedy = REFUSED.get(name) ?? 'Leave it out: it has no translation.';
  return new RequestRefusal('unsupported_parameter', isQuotable ? name : 'request', what, remedy);
}

/**
 * Whether the member is set; null counts as absent. Throws a RequestRefusal if the member is not accepted, or
 * if the value has the wrong kind.
 */
export function isTaken({ name, kind }: Member): boolean {
  const wanted = KINDS.get(name);
  const isNull = kind === 'null';
  if (wanted === undefined && !(isNull && REFUSED.has(name))) throw refused(name);
  const found = kind === 'true' || kind === 'false' ? 'boolean' : kind;
  if (isNull || wanted === 'any' || found === wanted) return !isNull;
  throw new Placed(name, undefined).invalid(`a value of the kind ${wanted}`);
}

/** Throws a RequestRefusal if a member asks for something that the service does not do. */
export function demandSupported(request: Placed): void {
  const { background, truncation = 'disabled', top_logprobs: logprobs = 0, include = [] } = request.object;
  if (background === true) throw refused('background');
  if (truncation !== 'disabled') throw refused('truncation');
  if (logprobs !== 0) throw refused('top_logprobs');
  if ((include as unknown[]).includes('message.output_text.logprobs')) throw refused('include');
  const { max_output_tokens: most = 0 } = request.object;
  const isCount = Number.isSafeInteger(most) && (most as number) >= 0;
  if (!isCount) throw request.at('max_output_tokens').invalid('an integer from 0');
}

/** Maps the words of the Responses API for reasoning effort to the service's words. */
const EFFORTS: ReadonlyMap<unknown, string> = new Map([
  ...['none', 'minimal', 'low'].map((effort): [string, string] => [effort, 'low']),
  ['medium', 'medium'],
  ...['high', 'xhigh', 'max'].map((effort): [string, string] => [effort, 'high']),
]);

/** The members of the chat request, except messages, tools and `tool_choice`. */
export function chatOf(request: Placed): PlainObject {
  const members = request.object;
  const chat: Record<string, unknown> = {};
  for (const name of SAME) if (name in members) chat[name] = members[name];
  if ('max_output_tokens' in members) chat['max_completion_tokens'] = members['max_output_tokens'];
  if (members['stream'] === true) chat['stream_options'] = { include_usage: true };
  const format = 'text' in members ? request.at('text').at('format') : undefined;
  if (format?.isSet) Object.assign(chat, formatOf(format));
  const effort = 'reasoning' in members ? request.at('reasoning').at('effort') : undefined;
  if (!effort?.isSet) return chat;
  const known = EFFORTS.get(effort.value);
  if (known === undefined) throw effort.invalid('"low", "medium" or "high"');
  return { ...chat, reasoning_effort: known };
}

/** The member `response_format` of the chat request. For plain text there is no member. */
function formatOf(format: Placed): PlainObject {
  const { type, description, strict } = format.object;
  if (type === 'text') return {};
  if (type === 'json_object') return { response_format: { type } };
  if (type !== 'json_schema') throw format.at('type').invalid('"text", "json_object" or "json_schema"');
  const [name, schema] = [format.at('name').string, format.at('schema').object];
  const json_schema = { name, description: description ?? undefined, schema, strict: strict ?? undefined };
  return { response_format: { type, json_schema } };
}

const NULLS = [
  ...['access_programs', 'conversation', 'instructions', 'max_output_tokens', 'max_tool_calls'],
  ...['previous_response_id', 'prompt', 'prompt_cache_key', 'prompt_cache_retention', 'safety_identifier'],
];
/** The values of members of the Response object, for members that the request does not set. */
const DEFAULTS = {
  ...Object.fromEntries(NULLS.map((name) => [name, null])),
  metadata: {},
  parallel_tool_calls: true,
  reasoning: { effort: null, summary: null },
  service_tier: 'default',
  temperature: 1,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_logprobs: 0,
  top_p: 1,
  truncation: 'disabled',
  user: undefined,
};
/**
 * Members of the Response object that no request changes: nothing is stored or runs in the background, and
 * nothing is moderated.
 */
const FIXED = { background: false, moderation: null, store: false };

/** The members of the Response object that repeat the request or have defaults. */
export function echoOf({ object: members }: Placed): PlainObject {
  const repeated = Object.entries(DEFAULTS).map(([name, value]) => [name, members[name] ?? value]);
  return { ...Object.fromEntries(repeated), ...FIXED };
}
