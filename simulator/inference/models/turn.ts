/** What the built-in models do with a turn of conversation, before an API style gives it a shape. */
import { randomBytes } from 'node:crypto';
import type { JsonObject } from '../request.ts';
import { type ToolCall, toolCallFor } from './tools.ts';

export interface TextTurn {
  readonly kind: 'text';
  readonly tokens: Iterable<string>;
  readonly intervalMs: number;
}

export interface ToolTurn {
  readonly kind: 'tool';
  readonly call: ToolCall;
}

/** The model server's own error: it is encrypted like any answer. */
export interface ErrorTurn {
  readonly kind: 'error';
  readonly status: number;
}

export type Turn = TextTurn | ToolTurn | ErrorTurn;

/** Tokens that tell their place, so that a lost or swapped one shows; each choice walks them on its own. */
const numbered = (count: number): Iterable<string> => ({
  *[Symbol.iterator]() {
    for (let index = 0; index < count; index++) yield index === 0 ? 't0' : ` t${index}`;
  },
});

/** A text cut before each word, its blanks kept: the pieces concatenate to the text. */
export const wordsOf = (text: string): string[] => text.match(/^\s+|\S+\s*/g) ?? [];

const isObject = (value: unknown): value is JsonObject => typeof value === 'object' && value !== null;

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part) => (isObject(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
}

/** The text of the last message of the user; of legacy completions, the prompt. */
export function lastUserText(request: JsonObject): string {
  const { messages, prompt } = request as { messages?: unknown; prompt?: unknown };
  if (!Array.isArray(messages)) return Array.isArray(prompt) ? prompt.join(' ') : String(prompt ?? '');
  const last = messages.findLast((message) => isObject(message) && message['role'] === 'user');
  return textOf((last as JsonObject | undefined)?.['content']);
}

interface ModelRow {
  readonly name: RegExp;
  readonly does: string;
  readonly turn: (match: RegExpExecArray, request: JsonObject) => Turn;
}

/** The built-in models. A name that fits no row answers like `sim-echo`, where it is served at all. */
export const MODELS: readonly ModelRow[] = [
  {
    name: /^sim-(\d{1,7})x(\d{1,6})$/,
    does: 'sim-<N>x<ms>: N tokens, ms apart; 0 is as fast as it goes',
    turn: ([, count, interval]) => ({
      kind: 'text',
      tokens: numbered(Number(count)),
      intervalMs: Number(interval),
    }),
  },
  {
    name: /^sim-tools$/,
    does: 'sim-tools: calls the first tool offered, and answers in words once it has a result',
    turn: (_, request) => {
      const call = toolCallFor(request);
      return call === undefined
        ? { kind: 'text', tokens: wordsOf('The tool has answered.'), intervalMs: 0 }
        : { kind: 'tool', call };
    },
  },
  {
    name: /^sim-error-([45]\d\d)$/,
    does: 'sim-error-<status>: an encrypted error of the model server',
    turn: ([, status]) => ({ kind: 'error', status: Number(status) }),
  },
  {
    name: /^/,
    does: 'sim-echo: the last user message, word by word',
    turn: (_, request) => ({ kind: 'text', tokens: wordsOf(lastUserText(request)), intervalMs: 0 }),
  },
];

/** What the model of that name (without its faults) does with the request. */
export function turnOf(model: string, request: JsonObject): Turn {
  for (const { name, turn } of MODELS) {
    const match = name.exec(model);
    if (match !== null) return turn(match, request);
  }
  throw new Error('the last row fits every name');
}

/**
 * The prompts of a legacy completions request: a text or an array of token numbers is one, any other array
 * holds one in each item. Prompts that come as embeddings come first.
 */
function promptsOf({ prompt, prompt_embeds: embeds }: JsonObject): readonly unknown[] {
  const ofEmbeds = Array.isArray(embeds) ? embeds : typeof embeds === 'string' ? [embeds] : [];
  const isBatch = Array.isArray(prompt) && !prompt.every((item) => typeof item === 'number');
  const ofPrompt = isBatch ? prompt : [prompt];
  return ofEmbeds.length > 0 && (prompt === undefined || prompt === null)
    ? ofEmbeds
    : [...ofEmbeds, ...ofPrompt];
}

/** As `turnOf`, for each prompt of a legacy completions request. */
export const turnsOf = (model: string, request: JsonObject): readonly Turn[] =>
  promptsOf(request).map((prompt) => turnOf(model, { ...request, prompt }));

/** An identifier in the dialects' manner. */
export const newId = (prefix: string): string => `${prefix}${randomBytes(12).toString('hex')}`;

/** Four bytes are about one token; good enough for a usage figure. */
export const countTokens = (value: unknown): number =>
  Math.ceil(Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value ?? '')) / 4);
