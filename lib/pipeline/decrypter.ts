/** Interfaces, errors, values and token counts that the decryption of streams and of whole bodies share. */
import { notAuthentic, type RequestCipher } from '../envelope/protection.ts';
import { PrivatemodeError } from '../errors.ts';
import type { ParsedBody } from './request-body.ts';

/** Decrypts one stream. A Decrypter must be a class, not an object literal (docs/architecture.md H25). */
export interface Decrypter {
  /** Returns the plaintext that a chunk completes, perhaps none. Sets `failure` instead of throwing. */
  feed(chunk: Uint8Array): Uint8Array;
  end(): void; // called once when upstream ends; sets `failure` if the end comes too early
  /** The error of a stream that turns out to be wrong. Bytes before the error are valid; none follow it. */
  readonly failure: PrivatemodeError | undefined;
  readonly finished: boolean; // whether further bytes are ignored; also true after a failure
  readonly modelError: boolean; // whether the service reported an error in the stream
  readonly events: number; // how many events were delivered so far; a terminal event counts
  readonly usage: TokenUsage | undefined; // the latest counts, even if they are hidden from the application
}

/** Takes decrypted events of a chat, and writes events of another API. Errors of a sink fail the stream. */
export interface EventSink {
  chunk(chunk: Members): void; // takes a chunk as parsed `created`, `model`, `choices`, `usage`
  error(error: Members): never; // takes an error of the service
  accept(): void; // called at the end of a complete stream
  readonly events: number; // the number of events that the sink has written so far
  take(before: string): Uint8Array; // returns the text `before` and what the sink wrote since the last call
}

export type Opener = Pick<RequestCipher, 'open'>;

/** The kind of response that the request asked for; a genuine response has this kind. */
export type RequestFacts = Pick<ParsedBody, 'streaming' | 'choices' | 'format' | 'usage'>;

export { notAuthentic };
export const malformed = (message: string) => new PrivatemodeError('response_malformed', message);

/** Parses JSON text in latin1, or throws `refusal`. Latin1 is safe: no check reads non-ASCII characters. */
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

export const own = <T>(members: Members<T>, name: string): T | undefined =>
  Object.hasOwn(members, name) ? members[name] : undefined;

/** Token counts as the service states them; most are not authenticated. `cached` is a part of `prompt`. */
export type TokenUsage = Readonly<Record<'prompt' | 'completion' | 'cached', number | undefined>>;

function countIn(counts: unknown, name: string): number | undefined {
  const value = isObject(counts) ? own(counts, name) : undefined;
  // A number above 1e9 must be forged, and a forged number could be anything, so it is not used as a count.
  const isCount = typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 1e9;
  return isCount ? value : undefined;
}

/** The counts in a parsed `usage`. `earlier` fills in missing counts. Undefined if no count is known. */
export function tokenUsage(usage: unknown, earlier?: TokenUsage): TokenUsage | undefined {
  const whole = countIn(usage, 'prompt_tokens'); // OpenAI's count includes cached tokens
  const details = isObject(usage) ? usage['prompt_tokens_details'] : undefined;
  const read =
    whole === undefined ? countIn(usage, 'cache_read_input_tokens') : countIn(details, 'cached_tokens');
  const uncached = countIn(usage, 'input_tokens'); // Anthropic's count leaves out all tokens of the cache
  const written = countIn(usage, 'cache_creation_input_tokens') ?? 0;
  const told = whole ?? (uncached === undefined ? undefined : uncached + (read ?? 0) + written);
  const prompt = told ?? earlier?.prompt;
  const completion =
    countIn(usage, 'completion_tokens') ?? countIn(usage, 'output_tokens') ?? earlier?.completion;
  if (prompt === undefined && completion === undefined) return undefined;
  const cached = told === undefined ? earlier?.cached : read;
  return { prompt, completion, cached: cached !== undefined && cached <= prompt! ? cached : undefined };
}
