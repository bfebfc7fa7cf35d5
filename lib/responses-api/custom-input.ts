/**
 * Reads the input of a custom tool from `{"input":"…"}`, the arguments of the function that stands for the
 * tool. Models write JSON that is almost valid. So in the string, a control character stands for itself, and
 * so does the backslash of an invalid escape (`\d`).
 */
import { PrivatemodeError } from '../errors.ts';
import { isObject } from './request-refusal.ts';

/** The start of arguments whose input can be read piece by piece. Other input is read at their end. */
const BEGIN = /^\s*\{\s*"input"\s*:\s*"/;
const LONGEST_BEGIN = 64;

const BACKSLASH = 0x5c;
const QUOTE = 0x22;
/**
 * The rest of the arguments, from the quote that ends the input; without the group, they were cut. Another
 * quote behind it would mean that the input has quotes of its own, which the model did not escape.
 */
const END = /^"\s*(?:,\s*)?(\}[^"]*)?$/;

const ESCAPES = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/g;
/**
 * An escape whose end has not arrived, or the first half of a surrogate pair whose second half may still
 * come: some JSON readers refuse one half.
 */
const UNDECIDED = /^\\(?:u(?:[\da-fA-F]{0,3}|[dD][89abAB][\da-fA-F]{2}(?:\\(?:u[\da-fA-F]{0,3})?)?))?$/;
/** More characters than UNDECIDED can have. */
const ENOUGH = 12;

export class CustomInput {
  #args = '';
  #given = ''; // the input that `feed` returned so far
  #pending = ''; // what is not decoded yet, still escaped; behind the string, its quote and all that follows
  #state: 'before' | 'within' | 'behind' | 'unread' = 'before';

  /** Takes the next piece of the arguments; returns the input that it completes. */
  feed(piece: string): string {
    this.#args += piece;
    if (this.#state === 'before') {
      const begin = BEGIN.exec(this.#args.slice(0, LONGEST_BEGIN))?.[0];
      if (begin !== undefined) {
        this.#state = 'within';
        this.#pending = this.#args.slice(begin.length);
      } else if (this.#args.length >= LONGEST_BEGIN) this.#state = 'unread';
    } else if (this.#state !== 'unread') this.#pending += piece;
    return this.#state === 'within' ? this.#decode() : '';
  }

  /**
   * Returns the whole input, and the `rest` that `feed` has not returned. If the arguments hold no input, and
   * nobody got a part of one from `feed` (`isDelivered`), the arguments themselves count as the input. Throws
   * stream_unfinished if the arguments are no JSON and end within the object, and response_malformed if the
   * input does not continue what was delivered.
   */
  finish(isDelivered: boolean): { readonly input: string; readonly rest: string } {
    const input = inputIn(this.#args) ?? this.#inputRead();
    if (input?.startsWith(this.#given)) return { input, rest: input.slice(this.#given.length) };
    // The application's tool says what is wrong with such an input, and the model reads that.
    if (this.#given === '' || !isDelivered) return { input: this.#args, rest: this.#args };
    throw new PrivatemodeError('response_malformed', 'the model called a custom tool with broken arguments');
  }

  /** The input that `feed` returned, if it is whole. Throws stream_unfinished if the arguments were cut. */
  #inputRead(): string | undefined {
    const end = this.#state === 'behind' ? END.exec(this.#pending) : undefined;
    if (this.#state === 'within' || (end && end[1] === undefined)) throw cutArguments();
    return end ? this.#given : undefined;
  }

  #decode(): string {
    const pending = this.#pending;
    let at = 0;
    while (at < pending.length && pending.charCodeAt(at) !== QUOTE) {
      if (pending.charCodeAt(at) !== BACKSLASH) at += 1;
      else if (UNDECIDED.test(pending.slice(at, at + ENOUGH))) break;
      else at += 2;
    }
    if (pending.charCodeAt(at) === QUOTE) this.#state = 'behind';
    this.#pending = pending.slice(at);
    const text = pending.slice(0, at).replace(ESCAPES, (one) => JSON.parse(`"${one}"`) as string);
    this.#given += text;
    return text;
  }
}

export const cutArguments = () =>
  new PrivatemodeError('stream_unfinished', 'the arguments of a call were cut');

/** The input in complete arguments; undefined if they are no JSON object with a string as `input`. */
function inputIn(args: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(args);
    const input = isObject(parsed) ? parsed['input'] : undefined;
    return typeof input === 'string' ? input : undefined;
  } catch {
    return undefined;
  }
}
