/** What the built-in models do in one turn of a conversation, before an API style gives it a shape. */
import { randomBytes } from 'node:crypto';
import { paced } from '../pacing.ts';
import { isObject, type JsonObject } from '../request.ts';
import { AFTER_A_TOOL, answerTo, editFor } from './person.ts';
import { hasToolResult, type ToolCall, toolCallFor } from './tools.ts';

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

/** ms between the pieces of a turn. */
export const intervalOf = (turn: Turn | undefined): number => (turn?.kind === 'text' ? turn.intervalMs : 0);

/** The tokens of a text, or the pieces of a call, at their pace. */
export const piecesOf = (turn: TextTurn | ToolTurn, signal: AbortSignal): AsyncGenerator<string> =>
  paced(turn.kind === 'text' ? turn.tokens : turn.call.pieces, intervalOf(turn), signal);

/** As `piecesOf`, once all would have been streamed. */
export async function collected(turn: TextTurn | ToolTurn, signal: AbortSignal): Promise<string[]> {
  const pieces: string[] = [];
  for await (const piece of piecesOf(turn, signal)) pieces.push(piece);
  return pieces;
}

const textTurn = (tokens: Iterable<string>, intervalMs = 0) => ({
  kind: 'text' as const,
  tokens,
  intervalMs,
});

/** Tokens that contain their position: a lost or swapped one is visible. Each choice iterates on its own. */
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
function lastUserText({ messages, prompt }: JsonObject): string {
  if (!Array.isArray(messages)) return Array.isArray(prompt) ? prompt.join(' ') : String(prompt ?? '');
  const last = messages.findLast((message) => isObject(message) && message['role'] === 'user');
  return textOf((last as JsonObject | undefined)?.['content']);
}

/** ms between the words of `sim-chat`, slow enough for a person to watch. */
const READING_PACE = 15;

type Behaviour = (match: RegExpExecArray, request: JsonObject, edits: string | undefined) => Turn;

/** The built-in models: the form of their names, and what they do. The last one has every other name. */
const MODELS: readonly (readonly [name: RegExp, does: Behaviour])[] = [
  [/^sim-(\d{1,7})x(\d{1,6})$/, ([, count, interval]) => textTurn(numbered(Number(count)), Number(interval))],
  [
    /^sim-tools$/,
    (_, request) => {
      const call = toolCallFor(request);
      return call === undefined ? textTurn(wordsOf('The tool has answered.')) : { kind: 'tool', call };
    },
  ],
  [/^sim-error-([45]\d\d)$/, ([, status]) => ({ kind: 'error', status: Number(status) })],
  [
    /^(?:sim-chat|gpt-oss-120b)$/,
    (_, request, edits) => {
      const text = lastUserText(request);
      const call = edits === undefined ? undefined : editFor(text, request, edits);
      if (call !== undefined) return { kind: 'tool', call };
      const said = hasToolResult(request['messages']) ? AFTER_A_TOOL : answerTo(text);
      return textTurn(wordsOf(said), READING_PACE);
    },
  ],
  [/^/, (_, request) => textTurn(wordsOf(lastUserText(request)))],
];

/** What the model of that name, without faults, does with the request. `edits`: as in `ModelOptions`. */
export function turnOf(model: string, request: JsonObject, edits?: string): Turn {
  for (const [name, does] of MODELS) {
    const match = name.exec(model);
    if (match !== null) return does(match, request, edits);
  }
  throw new Error('the last row fits every name');
}

/** As `turnOf`, for each prompt of a legacy request: token numbers are one, another array is many. */
export function turnsOf(model: string, request: JsonObject): readonly Turn[] {
  const { prompt } = request;
  const isBatch = Array.isArray(prompt) && !prompt.every((item) => typeof item === 'number');
  return (isBatch ? prompt : [prompt]).map((each) => turnOf(model, { ...request, prompt: each }));
}

/** A random identifier in the form that both API styles use. */
export const newId = (prefix: string): string => `${prefix}${randomBytes(12).toString('hex')}`;

/** Estimates tokens as one per four bytes; good enough for a usage figure. */
export const countTokens = (value: unknown): number =>
  Math.ceil(Buffer.byteLength(typeof value === 'string' ? value : JSON.stringify(value ?? '')) / 4);
