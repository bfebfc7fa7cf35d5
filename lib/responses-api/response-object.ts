/** Builds the Response object and its items, for streams and whole bodies alike. */
import { randomBytes } from '../crypto/random.ts';
import { isObject, type PlainObject } from './request-refusal.ts';
import type { ToolOrigin } from './tools.ts';

/** What the response needs to know of its request. */
export interface ResponseContext {
  /** The model that was asked for. */
  readonly model: string;
  /** Members of the Response object that repeat the request, as JSON text without the braces, on one line. */
  readonly echo: Uint8Array;
  /** The application's tools, by their names in chat. */
  readonly origins: ReadonlyMap<string, ToolOrigin>;
  /** Whether reasoning items have `encrypted_content`. */
  readonly sealsReasoning: boolean;
  /** Whether texts have `logprobs`. */
  readonly logprobs: boolean;
}

const ID_BYTES = 12;

/** A new id. The service's ids are not used, because nothing authenticates them. */
export const newId = (prefix: string): string => `${prefix}_${randomBytes(ID_BYTES).toString('hex')}`;

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** How a response ended, other than by a failure. */
export interface ResponseOutcome {
  readonly status: 'completed' | 'incomplete';
  readonly reason?: 'max_output_tokens' | 'content_filter';
}
const COMPLETED: ResponseOutcome = { status: 'completed' };
/** Outcomes by the `finish_reason` of the chat completion. Any other finish is a failure. */
export const OUTCOMES: ReadonlyMap<unknown, ResponseOutcome> = new Map([
  ['stop', COMPLETED],
  ['tool_calls', COMPLETED],
  ['length', { status: 'incomplete', reason: 'max_output_tokens' }],
  ['content_filter', { status: 'incomplete', reason: 'content_filter' }],
]);

/** A part of an item: its text grows with each piece. */
export interface Part {
  readonly index: number;
  readonly type: 'output_text' | 'refusal' | 'reasoning_text';
  text: string;
  readonly logprobs: object[];
}

/** The member that has the text of a part. */
export const PART_TEXTS = { output_text: 'text', refusal: 'refusal', reasoning_text: 'text' } as const;

export const partItem = ({ type, text, logprobs }: Part): object => ({
  type,
  [PART_TEXTS[type]]: text,
  ...(type === 'output_text' && { annotations: [], logprobs }),
});

export const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

/**
 * Begins the `encrypted_content` of reasoning items. The text follows in an encoding that only this
 * translation reads back. The encoding keeps no secret of the client.
 */
const MARK = 'privatemode.1.';

export const writeReasoning = (text: string): string =>
  MARK + Buffer.from(JSON.stringify(text)).toString('base64');

/**
 * The text that `writeReasoning` encoded; undefined for content that others wrote, which this program cannot
 * read.
 */
export function readReasoning(content: string): string | undefined {
  if (!content.startsWith(MARK)) return undefined;
  try {
    const text: unknown = JSON.parse(Buffer.from(content.slice(MARK.length), 'base64').toString('utf8'));
    return typeof text === 'string' ? text : undefined;
  } catch {
    return undefined;
  }
}

export function reasoningItem(
  id: string,
  status: ItemStatus,
  content: readonly object[],
  sealed?: string,
): object {
  const encrypted = sealed !== undefined && { encrypted_content: writeReasoning(sealed) };
  return { id, type: 'reasoning', summary: [], content, ...encrypted, status };
}

export const messageItem = (id: string, status: ItemStatus, content: readonly object[]) => ({
  id,
  type: 'message',
  role: 'assistant',
  status,
  content,
});

/** Identifies a tool call, and its tool. */
export interface CallHead {
  /** The name under which chat knows the tool. */
  readonly chatName: string;
  readonly id: string;
  readonly callId: string;
  readonly origin: ToolOrigin;
}

const ITEM_PREFIXES = { function: 'fc', custom: 'ctc', tool_search: 'tsc' } as const;

/**
 * Returns a function that gives the calls of one response their ids. A client tells the calls apart by
 * `call_id`, so no two have the same.
 */
export function createCallHeads({ origins }: ResponseContext): (name: string, id: unknown) => CallHead {
  const taken = new Set<string>();
  return (name, id) => {
    const origin: ToolOrigin = origins.get(name) ?? { kind: 'function', name };
    const callId = isText(id) && !taken.has(id) ? id : newId('call');
    taken.add(callId);
    return { chatName: name, id: newId(ITEM_PREFIXES[origin.kind]), callId, origin };
  };
}

/** The item of a call; `value` is its arguments, or the input of a custom tool. */
export function callItem({ id, callId, origin }: CallHead, status: ItemStatus, value: string): object {
  const { kind, name, namespace } = origin;
  if (kind === 'tool_search') {
    const args = status === 'in_progress' ? {} : argumentsIn(value);
    return { id, type: 'tool_search_call', call_id: callId, execution: 'client', arguments: args, status };
  }
  const named = { call_id: callId, name, ...(namespace !== undefined && { namespace }) };
  return kind === 'custom'
    ? { id, type: 'custom_tool_call', ...named, input: value, status }
    : { id, type: 'function_call', ...named, arguments: value, status };
}

function argumentsIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Log probabilities in the form of the API, where `bytes` is a list; in chat it may be null. */
export function logprobsOf(choice: PlainObject): readonly object[] {
  const { content } = isObject(choice['logprobs']) ? choice['logprobs'] : {};
  if (!Array.isArray(content)) return [];
  const entry = ({ token, logprob, bytes }: PlainObject) => ({ token, logprob, bytes: bytes ?? [] });
  return content.filter(isObject).map((token) => {
    const top = Array.isArray(token['top_logprobs']) ? token['top_logprobs'] : [];
    return { ...entry(token), top_logprobs: top.filter(isObject).map(entry) };
  });
}

const count = (from: unknown, name: string): number => {
  const value = isObject(from) ? from[name] : undefined;
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : 0;
};

/**
 * Token usage in the form of the API. Undefined while there is none: the types of the official clients know
 * no null.
 */
function usageOf(usage: unknown): object | undefined {
  if (!isObject(usage)) return undefined;
  const { prompt_tokens_details: input, completion_tokens_details: output } = usage;
  return {
    input_tokens: count(usage, 'prompt_tokens'),
    input_tokens_details: { cached_tokens: count(input, 'cached_tokens'), cache_write_tokens: 0 },
    output_tokens: count(usage, 'completion_tokens'),
    output_tokens_details: { reasoning_tokens: count(output, 'reasoning_tokens') },
    total_tokens: count(usage, 'total_tokens'),
  };
}

/** Members that are the same in all states of one Response object. */
export interface ResponseHead {
  readonly id: string;
  readonly createdAt: number;
  readonly model: string;
}

/** `chat`: a chunk or a body of chat, if there is one. */
export function responseHead({ model: asked }: ResponseContext, chat: PlainObject = {}): ResponseHead {
  const { created, model } = chat;
  return {
    id: newId('resp'),
    createdAt: Number.isSafeInteger(created) ? (created as number) : Math.floor(Date.now() / 1000),
    model: typeof model === 'string' && model !== '' ? model : asked,
  };
}

export interface ResponseState {
  readonly status: 'in_progress' | 'completed' | 'incomplete' | 'failed';
  readonly reason?: ResponseOutcome['reason'];
  readonly output?: readonly object[];
  readonly usage?: unknown;
  readonly error?: { readonly code: string; readonly message: string };
}

/**
 * The beginning of the Response object as JSON text, up to and with the comma before `echo`. The caller adds
 * `echo` and the closing brace: `echo` may be long, so it stays bytes and is never made text.
 */
export function responseText(head: ResponseHead, state: ResponseState): string {
  const { status, reason, output = [], usage, error = null } = state;
  const own = {
    id: head.id,
    object: 'response',
    created_at: head.createdAt,
    completed_at: status === 'completed' ? Math.floor(Date.now() / 1000) : null,
    status,
    error,
    incomplete_details: reason === undefined ? null : { reason },
    model: head.model,
    output,
    usage: usageOf(usage),
  };
  return `${JSON.stringify(own).slice(0, -1)},`;
}
