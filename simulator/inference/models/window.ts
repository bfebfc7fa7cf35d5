/**
 * Models with a context window. They count the tokens of a request, and refuse one that does not fit with
 * vLLM's message.
 */
import type { JsonObject } from '../request.ts';
import { countTokens } from './turn.ts';

/** Tokens of prompt and output together, by name. */
export const WINDOWS: ReadonlyMap<string, number> = new Map([
  ['sim-64k', 65_536],
  ['sim-128k', 131_072],
]);

/** Tokens of everything in a request that the model reads. */
export const countPrompt = ({ messages, prompt, system, tools }: JsonObject): number =>
  [messages ?? prompt, system, tools].reduce<number>(
    (sum, part) => (part === undefined ? sum : sum + countTokens(part)),
    0,
  );

/** Why a request does not fit into that many tokens, as vLLM words it; undefined if it fits. */
export function overflowOf(window: number, request: JsonObject): string | undefined {
  const output = Number(request['max_completion_tokens'] ?? request['max_tokens'] ?? 0);
  const input = countPrompt(request);
  if (input + output <= window) return undefined;
  const limit = `This model's maximum context length is ${window} tokens`;
  if (output >= window) {
    return `'max_tokens' or 'max_completion_tokens' is too large: ${output}. ${limit} and your request has ${input} input tokens (${output} > ${window} - ${input}).`;
  }
  // vLLM stops counting once the prompt leaves no room for the output, so it knows only a minimum.
  const least = window - output + 1;
  return (
    `${limit}. However, you requested ${output} output tokens and your prompt contains at least ${least} input tokens, ` +
    `for a total of at least ${window + 1} tokens. Please reduce the length of the input prompt or the number of ` +
    `requested output tokens. (parameter=input_tokens, value=${least})`
  );
}
