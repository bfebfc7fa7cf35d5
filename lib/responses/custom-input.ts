/** The input of a custom tool, out of the arguments `{"input":"…"}` of the function that stands for it. */
import { PrivatemodeError } from '../errors.ts';
import { isObject } from './refusal.ts';

/** How the arguments begin where the input can be read piece by piece; else it is read at their end. */
const BEGIN = /^\s*\{\s*"input"\s*:\s*"/;
const LONGEST_BEGIN = 64;

const BACKSLASH = 0x5c;
const QUOTE = 0x22;
const FIRST_PRINTABLE = 0x20;
const ESCAPE = 2;
const UNICODE_ESCAPE = 6;
const HIGH_SURROGATE = /^\\u[dD][89abAB]/;

export class CustomInput {
  #args = '';
  #given = ''; // what `feed` returned so far
  #pending = ''; // of the string, as it is escaped
  #state: 'before' | 'within' | 'after' = 'before';

  /** Takes the next piece of the arguments; returns the input that it completes. */
  feed(piece: string): string {
    this.#args += piece;
    if (this.#state === 'within') this.#pending += piece;
    else if (this.#state === 'before') {
      const begin = BEGIN.exec(this.#args)?.[0];
      if (begin !== undefined) {
        this.#state = 'within';
        this.#pending = this.#args.slice(begin.length);
      } else if (this.#args.length > LONGEST_BEGIN) this.#state = 'after';
    }
    return this.#state === 'within' ? this.#decode() : '';
  }

  /** The whole input, and what of it `feed` has not returned. Throws response_malformed if that is not its continuation. */
  finish(): { readonly input: string; readonly rest: string } {
    const input = inputIn(this.#args);
    if (input?.startsWith(this.#given)) return { input, rest: input.slice(this.#given.length) };
    // The tool says what is wrong with it, and the model reads that.
    if (this.#given === '') return { input: this.#args, rest: this.#args };
    throw new PrivatemodeError('response_malformed', 'the model called a custom tool with broken arguments');
  }

  #decode(): string {
    const pending = this.#pending;
    let at = 0;
    while (at < pending.length) {
      const code = pending.charCodeAt(at);
      if (code === QUOTE || code < FIRST_PRINTABLE) {
        this.#state = 'after';
        break;
      }
      if (code !== BACKSLASH) {
        at += 1;
        continue;
      }
      const size = pending[at + 1] === 'u' ? UNICODE_ESCAPE : ESCAPE;
      if (at + size > pending.length) break;
      // Some JSON readers refuse one half of a pair: it waits for the other.
      const isHalf = size === UNICODE_ESCAPE && HIGH_SURROGATE.test(pending.slice(at, at + size));
      if (isHalf && at + 2 * size > pending.length && (pending[at + size] ?? '\\') === '\\') break;
      at += size;
    }
    const raw = pending.slice(0, at);
    this.#pending = pending.slice(at);
    try {
      const text = JSON.parse(`"${raw}"`) as string;
      this.#given += text;
      return text;
    } catch {
      this.#state = 'after';
      return '';
    }
  }
}

/** The input in whole arguments; undefined if they are not what was asked for. */
function inputIn(args: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(args);
    const input = isObject(parsed) ? parsed['input'] : undefined;
    return typeof input === 'string' ? input : undefined;
  } catch {
    return undefined;
  }
}
