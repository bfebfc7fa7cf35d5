/** What a response says it took: known to the proxy even where the application did not ask for it. */

/** Tokens that the service says it counted. Usage is a plain member in most responses, so nothing authenticates the numbers. */
export interface TokenUsage {
  readonly prompt: number | undefined;
  readonly completion: number | undefined;
}

/** A count beyond this is none: whoever wrote it could have written anything. */
const MOST_TOKENS = 1_000_000_000;

type Counts = Readonly<Record<string, unknown>>;

const isCount = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MOST_TOKENS;

/**
 * The counts in a parsed `usage`, and of `earlier` those that it does not repeat. Undefined where there are none: a transcription may
 * count seconds.
 */
export function tokenUsage(value: unknown, earlier?: TokenUsage): TokenUsage | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return earlier;
  const among = (names: readonly string[]): number | undefined =>
    names.map((name) => (Object.hasOwn(value, name) ? (value as Counts)[name] : undefined)).find(isCount);
  const prompt = among(['prompt_tokens', 'input_tokens']) ?? earlier?.prompt;
  const completion = among(['completion_tokens', 'output_tokens']) ?? earlier?.completion;
  return prompt === undefined && completion === undefined ? undefined : { prompt, completion };
}

/** The same of JSON text with one object in it, whatever stands around that. Never throws. */
export function tokenUsageIn(text: string, earlier?: TokenUsage): TokenUsage | undefined {
  try {
    return tokenUsage(JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1)), earlier);
  } catch {
    return earlier;
  }
}
