/** Token counts of a response; the proxy reads them even if the application did not ask for them. */
import { isObject } from './response-grammar.ts';

/** Tokens that the service says it counted. Usage is a plain member in most responses, so nothing authenticates the numbers. */
export interface TokenUsage {
  /** All of the prompt, whether or not it came from the cache of the service: "in", wherever the proxy shows tokens. */
  readonly prompt: number | undefined;
  readonly completion: number | undefined;
  /** Those of `prompt` that came from the cache; undefined where the service does not say. */
  readonly cached: number | undefined;
}

/** A count beyond this is none: whoever wrote it could have written anything. */
const MOST_TOKENS = 1_000_000_000;

/**
 * The counts in a parsed `usage`, and of `earlier` those that it does not repeat. Undefined where there are none: a transcription may
 * count seconds. OpenAI's `prompt_tokens` hold the cached ones; Anthropic's `input_tokens` leave out what its cache gave or took in.
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

/** The same of JSON text with one object in it, whatever stands around that. Never throws. */
export function tokenUsageIn(text: string, earlier?: TokenUsage): TokenUsage | undefined {
  try {
    return tokenUsage(JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1)), earlier);
  } catch {
    return earlier;
  }
}
