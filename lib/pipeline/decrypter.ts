/** What streams and whole bodies share: what opens them, errors, values, counts; the stream's interface. */
import { notAuthentic, type RequestCipher } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import type { ParsedBody } from './request-body.ts';

/** Decrypts one event stream. States are properties, or accessors of a class (docs/architecture.md H25). */
export interface Decrypter {
  /** Returns the plaintext bytes that this chunk completes; may be empty. Never throws: see `failure`. */
  feed(chunk: Uint8Array): Uint8Array;
  end(): void; // called once, when the wire has ended; sets `failure` if the end came too early
  /** Set once the stream turns out to be wrong. What was delivered before stays good; nothing comes after. */
  readonly failure: PrivatemodeError | undefined;
  readonly finished: boolean; // no more bytes are looked at, be it after a failure
  readonly modelError: boolean; // the model reported an error: `[DONE]` may follow, or not
  readonly events: number; // that were delivered so far, the terminal one included
  readonly usage: TokenUsage | undefined; // stated so far, whether or not the application gets it
}

/** Takes the opened events of a chat's stream, and writes others. What it throws is the stream's failure. */
export interface EventSink {
  chunk(chunk: Members): void; // parsed: `created`, `model`, `choices`, `usage`
  error(error: Members): never; // of the service
  accept(): void; // the stream is whole
  readonly events: number; // that it wrote so far
  take(before: string): Uint8Array; // what was written since the last call, behind lines without a meaning
}

export type Opener = Pick<RequestCipher, 'open'>;

/** The kind of response that the request asked for; a genuine response has this kind. */
export type RequestFacts = Pick<ParsedBody, 'streaming' | 'choices' | 'format' | 'usage'>;

export { notAuthentic };
export const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/** Parses a latin1 text, or throws `refusal`. Only strings have bytes beyond ASCII; no check reads those. */
export function jsonOf(text: string, refusal = () => notAuthentic('a value of the response is not JSON')) {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw refusal();
  }
}

export type Members<T = unknown> = Readonly<Record<string, T>>;

export const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The member of that name, if it is the object's own. */
export const own = <T>(members: Members<T>, name: string): T | undefined =>
  Object.hasOwn(members, name) ? members[name] : undefined;

/** Tokens that the service says it counted; mostly nothing authenticates them. `cached`: of the prompt. */
export type TokenUsage = Readonly<Record<'prompt' | 'completion' | 'cached', number | undefined>>;

function countIn(counts: unknown, name: string): number | undefined {
  const value = isObject(counts) ? own(counts, name) : undefined;
  // A larger number is not taken for a count: whoever wrote it could have written anything.
  const isCount = typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 1e9;
  return isCount ? value : undefined;
}

/** The counts in a parsed `usage`, and those of `earlier` that it does not repeat; undefined without any. */
export function tokenUsage(usage: unknown, earlier?: TokenUsage): TokenUsage | undefined {
  const whole = countIn(usage, 'prompt_tokens'); // OpenAI's include the cached ones
  const details = isObject(usage) ? usage['prompt_tokens_details'] : undefined;
  const read =
    whole === undefined ? countIn(usage, 'cache_read_input_tokens') : countIn(details, 'cached_tokens');
  const uncached = countIn(usage, 'input_tokens'); // Anthropic's leave out all of the cache's
  const written = countIn(usage, 'cache_creation_input_tokens') ?? 0;
  const told = whole ?? (uncached === undefined ? undefined : uncached + (read ?? 0) + written);
  const prompt = told ?? earlier?.prompt;
  const completion =
    countIn(usage, 'completion_tokens') ?? countIn(usage, 'output_tokens') ?? earlier?.completion;
  if (prompt === undefined && completion === undefined) return undefined;
  const cached = told === undefined ? earlier?.cached : read;
  return { prompt, completion, cached: cached !== undefined && cached <= prompt! ? cached : undefined };
}
