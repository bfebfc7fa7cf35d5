/** Rewrites errors about a full context window into those that agents act on (docs/architecture.md D47). */
import type { ErrorFormat } from '../api/error-response.ts';

/** The size of the window in vLLM's sentences about a full one: they have no code, and differ by version. */
const LIMIT =
  /(?:maximum context length (?:is |\()|maximum model length of |context length is only )(?<window>\d+)/;

// Sentences at which less output may be enough. `output`: the tokens that the request asks for. `prompt`:
// those of the prompt, if vLLM counted all; `least`: those that it counted before it stopped. It counts
// characters if the prompt has too many for any tokens: less output helps only if it left no token.
const PARTS = [
  /you requested (?<output>\d+) output tokens and your prompt contains (?:at least (?<least>\d+) |(?<prompt>\d+) input |\d+ characters \(more than 0 )/,
  /You passed (?<least>\d+) input tokens and requested (?<output>\d+) output tokens/,
  /\((?<prompt>\d+) in the messages, (?<output>\d+) in the completion\)/,
  /is too large: (?<output>\d+)\. .* your request has (?<prompt>\d+) input tokens/,
];

const LEAST_ROOM = 4000; // tokens: Claude Code asks for 1,000 fewer than are free, and for at least 3,000
const LONGEST = 64 * 1024; // bytes of an error that may be about the window

/**
 * The body to show in place of an error, which must be authentic: a forged one would make agents drop what
 * they remember. Undefined: it stays. Codex compacts at a code of OpenAI's, other agents at a sentence of
 * Anthropic's that the prompt is too large; if less output may be enough, it says that the output is.
 */
export function overflowBody(body: Uint8Array, status: number, format: ErrorFormat): Buffer | undefined {
  if (status !== 400 || format === 'plain' || body.length > LONGEST) return undefined;
  const parsed = JSON.parse(new TextDecoder().decode(body));
  const error = overflowError(parsed?.error, format, false);
  return error && Buffer.from(JSON.stringify({ ...parsed, error }));
}

/** The same for `error` alone. In a stream none asks for less output: Claude Code needs a 400 for that. */
export function overflowError(error: unknown, format: ErrorFormat, inStream = true): object | undefined {
  const { message } = (error ?? {}) as { message?: unknown };
  if (typeof message !== 'string' || message.length > LONGEST) return undefined;
  const window = Number(LIMIT.exec(message)?.groups?.['window'] ?? 0);
  if (window === 0) return undefined;
  const tooLong = `prompt is too long: ${message}`;
  const changed =
    format === 'anthropic'
      ? { message: inStream ? tooLong : (outputTooLarge(message, window) ?? tooLong) }
      : { code: 'context_length_exceeded' };
  return { ...(error as object), type: 'invalid_request_error', ...changed };
}

/** Anthropic's sentence for an output that does not fit; undefined without LEAST_ROOM, or if it does fit. */
function outputTooLarge(message: string, window: number): string | undefined {
  const parts = PARTS.map((part) => part.exec(message)?.groups).find((groups) => groups !== undefined);
  const output = Number(parts?.['output'] ?? 0);
  // If vLLM stopped counting, our sentence leaves half of the output free: so an agent needs few requests,
  // and the last one gets the other sentence. More than two windows would leave a negative prompt.
  const least = Number(parts?.['least'] ?? 1);
  const prompt = Number(parts?.['prompt'] ?? Math.max(1, least, window - Math.floor(output / 2)));
  if (window - prompt < LEAST_ROOM || prompt + output <= window) return undefined;
  return `input length and \`max_tokens\` exceed context limit: ${prompt} + ${output} > ${window}`;
}
