/**
 * Models with a context window. They count the tokens of a request, and refuse one that does not fit with
 * vLLM's message.
 */
import type { JsonObject } from '../request.ts';
import { countTokens } from './turn.ts';

/** It has the name of a real model, and refuses a prompt in the words that vLLM has for that model. */
export const GPT_OSS = 'gpt-oss-120b';

/** Tokens of prompt and output together, by name. */
export const WINDOWS: ReadonlyMap<string, number> = new Map([
  [GPT_OSS, 131_072],
  ['sim-chat', 131_072],
  ['sim-64k', 65_536],
  ['sim-128k', 131_072],
]);

/** Tokens of everything in a request that the model reads. */
export const countPrompt = ({ messages, prompt, system, tools }: JsonObject): number =>
  [messages ?? prompt, system, tools].reduce<number>(
    (sum, part) => (part === undefined ? sum : sum + countTokens(part)),
    0,
  );

/**
 * Why a prompt for gpt-oss does not fit into that many tokens, as vLLM words it. vLLM cuts an output that
 * does not fit behind the prompt, so the output does not count.
 */
export function promptOverflowOf(window: number, request: JsonObject): string | undefined {
  const input = countPrompt(request);
  return input <= window
    ? undefined
    : `Input length (${input}) exceeds model's maximum context length (${window}).`;
}

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
