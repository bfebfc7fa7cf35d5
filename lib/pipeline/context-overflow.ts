/**
 * Rewrites errors about a full context window into the ones that agents act on. The model server (vLLM) gives
 * these errors no code of their own, so this table recognizes its sentences. What each agent does at which
 * sentence was measured: docs/decisions.md 47.
 */
import type { ErrorFormat } from '../api/error-response.ts';

/** The size of the window, as vLLM's sentences about a full one name it. They differ by version and model. */
const LIMIT =
  /(?:maximum context length (?:is |\()|maximum model length of |context length is only )(?<window>\d+)/;

/**
 * Sentences at which less output may be enough. `output`: the tokens that the request asks for. `prompt`: the
 * tokens of the prompt, if vLLM counted all of them; `least`: those that it counted before it stopped. vLLM
 * counts characters if the prompt has more than its longest tokens could hold, so less output helps only if
 * no token at all was left for the prompt.
 */
const PARTS = [
  /you requested (?<output>\d+) output tokens and your prompt contains (?:at least (?<least>\d+) |(?<prompt>\d+) input |\d+ characters \(more than 0 )/,
  /You passed (?<least>\d+) input tokens and requested (?<output>\d+) output tokens/,
  /\((?<prompt>\d+) in the messages, (?<output>\d+) in the completion\)/,
  /is too large: (?<output>\d+)\. .* your request has (?<prompt>\d+) input tokens/,
];

/**
 * Tokens that the prompt must leave free. Claude Code asks for 1,000 fewer than the sentence leaves free, and
 * for at least 3,000.
 */
const LEAST_ROOM = 4000;

/** Bytes. A longer error is not about the window. */
const LONGEST = 64 * 1024;

/**
 * The body to show in place of an error of the service; undefined: the body stays. The error must be
 * authentic: a forged one would make agents drop what they remember.
 *
 * In OpenAI's format the error gets the code `context_length_exceeded`, at which Codex compacts. In
 * Anthropic's format it gets Anthropic's own sentence if less output may be enough: at vLLM's sentence,
 * Claude Code would compact for nothing. Any other gets the beginning of Anthropic's sentence about a prompt
 * that is too long: agents compact at that, and know only some of vLLM's sentences.
 */
export function overflowBody(body: Uint8Array, status: number, format: ErrorFormat): Buffer | undefined {
  if (status !== 400 || format === 'plain' || body.length > LONGEST) return undefined;
  const parsed = JSON.parse(new TextDecoder().decode(body));
  const error = overflowError(parsed?.error, format, outputTooLarge);
  return error && Buffer.from(JSON.stringify({ ...parsed, error }));
}

/**
 * The same for `error` alone. Without `lessOutput` no error asks for less output: Claude Code acts on that
 * sentence only after a status of 400, not in an event of a stream.
 */
export function overflowError(
  error: unknown,
  format: ErrorFormat,
  lessOutput?: typeof outputTooLarge,
): object | undefined {
  const { message } = (error ?? {}) as { message?: unknown };
  if (typeof message !== 'string' || message.length > LONGEST) return undefined;
  const window = Number(LIMIT.exec(message)?.groups?.['window'] ?? 0);
  if (window === 0) return undefined;
  const changed =
    format === 'anthropic'
      ? { message: lessOutput?.(message, window) ?? `prompt is too long: ${message}` }
      : { code: 'context_length_exceeded' };
  return { ...(error as object), type: 'invalid_request_error', ...changed };
}

/**
 * Anthropic's sentence for an output that does not fit behind the prompt. Undefined if the prompt leaves
 * fewer than LEAST_ROOM tokens, or if the output does fit.
 */
function outputTooLarge(message: string, window: number): string | undefined {
  const parts = PARTS.map((part) => part.exec(message)?.groups).find((groups) => groups !== undefined);
  const output = Number(parts?.['output'] ?? 0);
  // If vLLM stopped counting the prompt, our sentence leaves half of the output free. So an agent needs few
  // requests, and the last one gets the other sentence. More than two windows would leave a negative prompt.
  const least = Number(parts?.['least'] ?? 1);
  const prompt = Number(parts?.['prompt'] ?? Math.max(1, least, window - Math.floor(output / 2)));
  if (window - prompt < LEAST_ROOM || prompt + output <= window) return undefined;
  return `input length and \`max_tokens\` exceed context limit: ${prompt} + ${output} > ${window}`;
}
