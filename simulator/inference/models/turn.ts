/** What the built-in models do in one turn of a conversation, before an API style gives it a shape. */
import { randomBytes } from 'node:crypto';
import type { JsonObject } from '../request.ts';
import { AFTER_A_TOOL, answerTo, editFor } from './person.ts';
import { hasToolResult, isObject, type ToolCall, toolCallFor } from './tools.ts';

export interface TextTurn {
  readonly kind: 'text';
  readonly tokens: Iterable<string>;
  readonly intervalMs: number;
  /** Whether `max_tokens` ended the text. */
  readonly isCut?: boolean;
}

export interface ToolTurn {
  readonly kind: 'tool';
  readonly call: ToolCall;
}

/** The model server's own error. It is encrypted like any response. */
export interface ErrorTurn {
  readonly kind: 'error';
  readonly status: number;
  /** Default: a text that names the status. */
  readonly message?: string;
}

export type Turn = TextTurn | ToolTurn | ErrorTurn;

/**
 * Tokens that contain their position, so that a lost or swapped token is visible. Each choice iterates over
 * them on its own.
 */
const numbered = (count: number): Iterable<string> => ({
  *[Symbol.iterator]() {
    for (let index = 0; index < count; index++) yield index === 0 ? 't0' : ` t${index}`;
  },
});

function* firstOf(tokens: Iterable<string>, count: number): Generator<string> {
  let left = count;
  for (const token of tokens) {
    if (left-- <= 0) return;
    yield token;
  }
}

/** The turn with no more tokens than the request allows; calls of tools and errors stay whole. */
export function withinLimit(turn: Turn, { max_completion_tokens, max_tokens }: JsonObject): Turn {
  const limit = max_completion_tokens ?? max_tokens;
  if (turn.kind !== 'text' || !Number.isSafeInteger(limit)) return turn;
  const { tokens } = turn;
  const most = limit as number;
  let count = 0;
  for (const _ of firstOf(tokens, most + 1)) count++;
  if (count <= most) return turn;
  return { ...turn, tokens: { [Symbol.iterator]: () => firstOf(tokens, most) }, isCut: true };
}

/** A text cut before each word, blanks included; joined, the pieces give the text again. */
export const wordsOf = (text: string): string[] => text.match(/^\s+|\S+\s*/g) ?? [];

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part) => (isObject(part) && typeof part['text'] === 'string' ? part['text'] : ''))
    .join('');
}

/** The text of the user's last message; for legacy completions, the prompt. */
export function lastUserText(request: JsonObject): string {
  const { messages, prompt } = request as { messages?: unknown; prompt?: unknown };
  if (!Array.isArray(messages)) return Array.isArray(prompt) ? prompt.join(' ') : String(prompt ?? '');
  const last = messages.findLast((message) => isObject(message) && message['role'] === 'user');
  return textOf((last as JsonObject | undefined)?.['content']);
}

interface ModelRow {
  readonly name: RegExp;
  readonly does: string;
  /** `edits`: the directory of `ModelOptions`. */
  readonly turn: (match: RegExpExecArray, request: JsonObject, edits: string | undefined) => Turn;
}

/** ms between the words of `sim-chat`, slow enough for a person to watch. */
const READING_PACE = 15;

const echo = (_: RegExpExecArray, request: JsonObject): Turn => ({
  kind: 'text',
  tokens: wordsOf(lastUserText(request)),
  intervalMs: 0,
});

/** The built-in models. A name that fits no row behaves like `sim-echo`, if it is served at all. */
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
    name: /^(?:sim-chat|gpt-oss-120b)$/,
    does: 'sim-chat: says back what a person said; also by the name gpt-oss-120b, for which the examples ask, with a window of 131,072 tokens',
    turn: (_, request, edits) => {
      const text = lastUserText(request);
      const call = edits === undefined ? undefined : editFor(text, request, edits);
      if (call !== undefined) return { kind: 'tool', call };
      const said = hasToolResult(request['messages']) ? AFTER_A_TOOL : answerTo(text);
      return { kind: 'text', tokens: wordsOf(said), intervalMs: READING_PACE };
    },
  },
  {
    name: /^sim-(?:64k|128k)$/,
    does: 'sim-64k, sim-128k: as sim-echo, and refuse what exceeds 65,536 or 131,072 tokens as vLLM does',
    turn: echo,
  },
  { name: /^/, does: 'sim-echo: the last user message, word by word', turn: echo },
];

/** What the model of that name (without faults) does with the request. */
export function turnOf(model: string, request: JsonObject, edits?: string): Turn {
  for (const { name, turn } of MODELS) {
    const match = name.exec(model);
    if (match !== null) return turn(match, request, edits);
  }
  throw new Error('the last row fits every name');
}

/**
 * The prompts of a legacy completions request. A text or an array of token numbers is one prompt; any other
 * array holds one prompt per item. Prompts given as embeddings come first.
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

/** A random identifier in the form that both API styles use. */
export const newId = (prefix: string): string => `${prefix}${randomBytes(12).toString('hex')}`;

/** Estimates tokens as one per four bytes; good enough for a usage figure. */
export const countTokens = (value: unknown): number =>
  Math.ceil(Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value ?? '')) / 4);
