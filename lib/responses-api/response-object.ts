/** Builds the Response object and its items, for streams and whole bodies alike. */
import { randomBytes } from '../crypto/random.ts';
import { isObject, jsonIn, type PlainObject } from './request-refusal.ts';
import type { ToolOrigin } from './tools.ts';

/** What the Response needs to know of its request. */
export interface ResponseContext {
  /** The model that the request asks for. */
  readonly model: string;
  /** The members of the Response object that repeat the request: their JSON text without the braces. */
  readonly echo: string;
  /** The name of each function in the chat request → the application's tool that this function replaces. */
  readonly origins: ReadonlyMap<string, ToolOrigin>;
  /** Whether reasoning items have `encrypted_content`. */
  readonly sealsReasoning: boolean;
}

/** A new id. The service's ids are not used, because nothing authenticates them. */
export const newId = (prefix: string): string => `${prefix}_${randomBytes(12).toString('hex')}`;

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

/** A part of a message or of reasoning. The text grows piece by piece, and each piece becomes an event. */
export interface Part {
  readonly type: 'output_text' | 'refusal' | 'reasoning_text';
  /** Members that every event of the part contains. */
  readonly place: object;
  text: string;
}

/** An item of the response: a message, or reasoning. */
export interface TextItem {
  readonly kind: 'reasoning' | 'message';
  readonly id: string;
  readonly index: number;
  readonly parts: Part[];
}

/** The text of a part, and the members that the types of the API demand beside the text. */
export const partText = ({ type, text }: Part): object =>
  type === 'output_text' ? { text, logprobs: [] } : { [type === 'refusal' ? type : 'text']: text };

export const partItem = (part: Part): object => ({
  type: part.type,
  ...partText(part),
  ...(part.type === 'output_text' && { annotations: [] }),
});

/**
 * The `encrypted_content` of reasoning items begins with this. The text follows in base64, which only this
 * translation reads back. The text is not encrypted, because it is no secret from the client.
 */
const MARK = 'privatemode.1.';

export const writeReasoning = (text: string): string =>
  MARK + Buffer.from(JSON.stringify(text)).toString('base64');

/** The text that `writeReasoning` encoded. Content of other services is unreadable, and gives undefined. */
export function readReasoning(content: unknown): string | undefined {
  if (typeof content !== 'string' || !content.startsWith(MARK)) return undefined;
  const text = jsonIn(Buffer.from(content.slice(MARK.length), 'base64').toString('utf8'));
  return typeof text === 'string' ? text : undefined;
}

/**
 * `seals`: whether reasoning gets `encrypted_content`. Reasoning is complete even if the response was cut.
 */
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

/** Token usage in the form of the API. Undefined without usage, because the API allows no null. */
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

export interface ResponseState {
  readonly status: 'in_progress' | 'completed' | 'incomplete' | 'failed';
  /** Why the response is incomplete. */
  readonly reason?: string | undefined;
  readonly output?: readonly object[];
  readonly usage?: unknown;
  readonly error?: { readonly code: string; readonly message: string };
}

/** Returns a function that writes a Response object as JSON. `created`, `model`: those of the chat. */
export function responseWriter({ model: asked, echo }: ResponseContext, { created, model }: PlainObject) {
  const now = (): number => Math.floor(Date.now() / 1000);
  const id = newId('resp');
  const createdAt = Number.isSafeInteger(created) ? created : now();
  return ({ status, reason, output = [], usage, error = null as never }: ResponseState): string => {
    const own = {
      id,
      object: 'response',
      created_at: createdAt,
      completed_at: status === 'completed' ? now() : null,
      status,
      error,
      incomplete_details: reason === undefined ? null : { reason },
      model: typeof model === 'string' && model !== '' ? model : asked,
      output,
      usage: usageOf(usage),
    };
    return `${JSON.stringify(own).slice(0, -1)},${echo}}`;
  };
}
