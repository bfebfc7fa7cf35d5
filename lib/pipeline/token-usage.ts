/** Token counts of a response; the proxy reads them even if the application did not ask for them. */
import { isObject } from './response-grammar.ts';

/**
 * Tokens that the service says it counted. Usage is a plain member in most responses, so nothing
 * authenticates the numbers.
 */
export interface TokenUsage {
  /**
   * All tokens of the prompt, whether or not they came from the service's cache. The proxy shows this count
   * as "in".
   */
  readonly prompt: number | undefined;
  readonly completion: number | undefined;
  /** Those of `prompt` that came from the cache; undefined where the service does not say. */
  readonly cached: number | undefined;
}

/** A larger number is not taken for a count: whoever wrote it could have written anything. */
const MOST_TOKENS = 1_000_000_000;

/**
 * Returns the counts in `value`, a parsed member `usage`, and those counts of `earlier` that `value` does not
 * repeat. Undefined if there are none: a transcription may count seconds. OpenAI's `prompt_tokens` include
 * the cached tokens. Anthropic's `input_tokens` leave out the tokens that its cache gave or took in.
 */
export function tokenUsage(value: unknown, earlier?: TokenUsage): TokenUsage | undefined {
  if (!isObject(value)) return earlier;
  const whole = countIn(value, 'prompt_tokens');
  const read =
    whole === undefined
      ? countIn(value, 'cache_read_input_tokens')
      : countIn(value['prompt_tokens_details'], 'cached_tokens');
  const uncached = countIn(value, 'input_tokens');
  const written = countIn(value, 'cache_creation_input_tokens') ?? 0;
  const told = whole ?? (uncached === undefined ? undefined : uncached + (read ?? 0) + written);
  const completion =
    countIn(value, 'completion_tokens') ?? countIn(value, 'output_tokens') ?? earlier?.completion;
  if (told !== undefined)
    return { prompt: told, completion, cached: read !== undefined && read <= told ? read : undefined };
  const { prompt, cached } = earlier ?? {};
  return prompt === undefined && completion === undefined ? undefined : { prompt, completion, cached };
}

function countIn(counts: unknown, name: string): number | undefined {
  const value = isObject(counts) && Object.hasOwn(counts, name) ? counts[name] : undefined;
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MOST_TOKENS
    ? (value as number)
    : undefined;
}
