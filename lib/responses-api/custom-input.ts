/**
 * Reads the input of a custom tool from `{"input":"…"}`, the arguments of the function that stands for the
 * tool. Models write JSON that is almost valid. So in the string, a control character stands for itself, and
 * so does the backslash of an invalid escape (`\d`).
 */
import { PrivatemodeError } from '../errors.ts';
import { isObject } from './request-refusal.ts';

const BEGIN = /^\s*\{\s*"input"\s*:\s*"/;
/**
 * The rest of the arguments, from the quote that ends the input; without the group, they were cut. Another
 * quote behind it would mean that the input has quotes of its own, which the model did not escape.
 */
const END = /^"\s*(?:,\s*)?(\}[^"]*)?$/;
const ESCAPES = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/g;

/**
 * The input in complete arguments. If they hold no input, or more than one, the arguments themselves are the
 * input: the application's tool says what is wrong with it, and the model reads that. Throws
 * stream_unfinished if the arguments were cut.
 */
export function inputIn(args: string): string {
  const parsed = parsedInput(args);
  const begin = BEGIN.exec(args)?.[0].length;
  if (begin === undefined) return parsed ?? args;
  let end = begin;
  while (end < args.length && args[end] !== '"') end += args[end] === '\\' ? 2 : 1;
  const rest = END.exec(args.slice(end));
  if (parsed === undefined && (end >= args.length || (rest && rest[1] === undefined))) throw cutArguments();
  const input = args.slice(begin, end).replace(ESCAPES, (one) => JSON.parse(`"${one}"`) as string);
  return input === parsed || (rest && parsed === undefined) ? input : args;
}

export const cutArguments = () =>
  new PrivatemodeError('stream_unfinished', 'the arguments of a call were cut');

/** The input in arguments that are a JSON object with a string as `input`; undefined for others. */
function parsedInput(args: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(args);
    const input = isObject(parsed) ? parsed['input'] : undefined;
    return typeof input === 'string' ? input : undefined;
  } catch {
    return undefined;
  }
}
