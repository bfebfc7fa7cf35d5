/** Builds the Response object and its items, for streams and whole bodies alike. */
import { randomBytes } from '../crypto/random.ts';
import { isObject, type PlainObject } from './request-refusal.ts';
import type { ToolOrigin } from './tools.ts';

/** What the response needs to know of its request. */
export interface ResponseContext {
  /** The model that was asked for. */
  readonly model: string;
  /** Members of the Response object that repeat the request, as JSON text without the braces. */
  readonly echo: string;
  /** The application's tools, by their names in chat. */
  readonly origins: ReadonlyMap<string, ToolOrigin>;
  /** Whether reasoning items have `encrypted_content`. */
  readonly sealsReasoning: boolean;
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

/** A part of an item: its text grows with each piece, and each piece becomes an event. */
export interface Part {
  readonly type: 'output_text' | 'refusal' | 'reasoning_text';
  /** The members with which all its events begin, as JSON text. */
  readonly place: string;
  text: string;
}

/** The item of a message, or of reasoning. */
export interface TextItem {
  readonly kind: 'reasoning' | 'message';
  readonly id: string;
  readonly index: number;
  readonly parts: Part[];
}

/** The member that has the text of a part. */
export const PART_TEXTS = { output_text: 'text', refusal: 'refusal', reasoning_text: 'text' } as const;

export const partItem = ({ type, text }: Part): object => ({
  type,
  [PART_TEXTS[type]]: text,
  ...(type === 'output_text' && { annotations: [], logprobs: [] }),
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

/** `seals`: whether reasoning has `encrypted_content`. Reasoning is over before a response can be cut. */
export function textItem({ kind, id, parts }: TextItem, status: ItemStatus, seals = false): object {
  const content = parts.map(partItem);
  if (kind === 'message') return { id, type: 'message', role: 'assistant', status, content };
  const sealed = seals && { encrypted_content: writeReasoning(parts[0]?.text ?? '') };
  const shown = status === 'in_progress' ? status : 'completed';
  return { id, type: 'reasoning', summary: [], content, ...sealed, status: shown };
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

/** The Response object as JSON text. */
export function responseText(head: ResponseHead, state: ResponseState, { echo }: ResponseContext): string {
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
  return `${JSON.stringify(own).slice(0, -1)},${echo}}`;
}
