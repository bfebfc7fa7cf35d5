/** Turns errors about a full context window into errors that agents act on (docs/architecture.md D47). */
import type { ErrorFormat } from '../api/error-response.ts';

/** Finds the size of a full window in vLLM's messages, which have no error code and differ by version. */
const LIMIT =
  /(?:maximum context length (?:is |\()|maximum model length of |context length is only )(?<window>\d+)/;

// Patterns of vLLM's errors about requests that may fit if they ask for less output. `output`: the tokens of
// output that the request asks for. `prompt`: the tokens of the prompt, if vLLM counted all of them. `least`:
// the tokens that vLLM had counted when it stopped counting. For a very long prompt vLLM counts only
// characters. A message that says "more than 0" means that the requested output left no token for the prompt.
const PARTS = [
  /you requested (?<output>\d+) output tokens and your prompt contains (?:at least (?<least>\d+) |(?<prompt>\d+) input |\d+ characters \(more than 0 )/,
  /You passed (?<least>\d+) input tokens and requested (?<output>\d+) output tokens/,
  /\((?<prompt>\d+) in the messages, (?<output>\d+) in the completion\)/,
  /is too large: (?<output>\d+)\. .* your request has (?<prompt>\d+) input tokens/,
];

const LEAST_ROOM = 4000; // Claude Code asks for 1,000 fewer tokens than are free, and for at least 3,000
const LONGEST = 64 * 1024; // bytes; a longer error is not changed

/**
 * Returns the body that replaces an error's body, or undefined if the error is not changed. The error must be
 * authentic: a forged error would make agents drop what they remember. Codex compacts a conversation when it
 * gets an error code of OpenAI's. Other agents compact when they get Anthropic's sentence that the prompt is
 * too long. If less output may be enough, the body has Anthropic's sentence about too much output.
 */
export function overflowBody(body: Uint8Array, status: number, format: ErrorFormat): Buffer | undefined {
  if (status !== 400 || format === 'plain' || body.length > LONGEST) return undefined;
  const parsed = JSON.parse(new TextDecoder().decode(body));
  const error = overflowError(parsed?.error, format, false);
  return error && Buffer.from(JSON.stringify({ ...parsed, error }));
}

/** Replaces a parsed `error`. Asking for less output needs status 400: no error in a stream asks for less. */
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

/** Anthropic's error for too much output. Undefined if all fits, or if under LEAST_ROOM tokens are free. */
function outputTooLarge(message: string, window: number): string | undefined {
  const parts = PARTS.map((part) => part.exec(message)?.groups).find((groups) => groups !== undefined);
  const output = Number(parts?.['output'] ?? 0);
  // If vLLM stopped counting, the error names a prompt that leaves room for half of the output. An agent that
  // repeats the request then halves its output each time, and soon gets the error about the prompt. An output
  // of more than two windows would make the prompt negative, so the prompt is at least 1.
  const least = Number(parts?.['least'] ?? 1);
  const prompt = Number(parts?.['prompt'] ?? Math.max(1, least, window - Math.floor(output / 2)));
  if (window - prompt < LEAST_ROOM || prompt + output <= window) return undefined;
  return `input length and \`max_tokens\` exceed context limit: ${prompt} + ${output} > ${window}`;
}
