/** The models of the list, and those with a context window, which refuse what does not fit as vLLM does. */
import type { JsonObject } from '../request.ts';
import { countTokens } from './turn.ts';

/** It has the name of a real model, and refuses a prompt in the words that vLLM has for that model. */
const GPT_OSS = 'gpt-oss-120b';

/** Tokens of prompt and output together, by name. */
const WINDOWS: ReadonlyMap<string, number> = new Map([
  [GPT_OSS, 131_072],
  ['sim-chat', 131_072],
  ['sim-64k', 65_536],
  ['sim-128k', 131_072],
]);

/** Models in the list. Any other `sim-…` name works as well. */
const LISTED =
  'sim-chat gpt-oss-120b sim-20x50 sim-200x0 sim-echo sim-tools sim-error-400 sim-64k sim-128k'.split(' ');

/** The names that the list shows; `scripted`: those of transcripts. */
export const namesOf = (scripted: readonly string[]): readonly string[] => [...LISTED, ...scripted];

export const isServed = (id: string, scripted: readonly string[]): boolean =>
  id.startsWith('sim-') || namesOf(scripted).includes(id);

/** One model as the list shows it. */
export const modelEntry = (id: string): JsonObject => ({
  ...{ id, object: 'model', created: 1700000000, owned_by: 'simulator', tasks: ['generate'] },
  ...(WINDOWS.has(id) && { max_model_len: WINDOWS.get(id) }),
});

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
  if (output >= window)
    return `'max_tokens' or 'max_completion_tokens' is too large: ${output}. ${limit} and your request has ${input} input tokens (${output} > ${window} - ${input}).`;
  // vLLM stops counting once the prompt leaves no room for the output, so it knows only a minimum.
  const least = window - output + 1;
  return (
    `${limit}. However, you requested ${output} output tokens and your prompt contains at least ${least} input tokens, ` +
    `for a total of at least ${window + 1} tokens. Please reduce the length of the input prompt or the number of ` +
    `requested output tokens. (parameter=input_tokens, value=${least})`
  );
}

/**
 * Why the model of that name refuses a request; undefined if it has no window, or the request fits. vLLM cuts
 * an output of gpt-oss that does not fit behind the prompt, so there the output does not count.
 */
export function refusalBy(name: string, request: JsonObject): string | undefined {
  const window = WINDOWS.get(name);
  if (window === undefined || name !== GPT_OSS)
    return window === undefined ? undefined : overflowOf(window, request);
  const input = countPrompt(request);
  return input <= window
    ? undefined
    : `Input length (${input}) exceeds model's maximum context length (${window}).`;
}
