/**
 * Keeps numbers as they are written, although they pass through JSON.parse and JSON.stringify: a schema may
 * hold 18446744073709551615, which a double does not. Each such number is a list with a secret mark while the
 * request is translated. It is a list, so that it is refused wherever a text or an object is expected.
 */
import { randomBytes } from '../crypto/random.ts';
import type { Member } from '../json/scan.ts';
import { tooLarge } from './request-refusal.ts';

/** Bytes of a text that is parsed in one go, as in chat (lib/pipeline/media-urls.ts). */
const LONGEST = 32 * 1024 * 1024;
/** Such numbers in one request. Each becomes three values. */
const MOST_NUMBERS = 20_000;
/** Nobody can guess it, so no text of the client can look like a number. */
const MARK_BYTES = 16;

export class ExactNumbers {
  readonly #mark = randomBytes(MARK_BYTES).toString('hex');
  /** Also finds a number whose list was written into a string, where its quotes are escaped. */
  readonly #pattern = new RegExp(`\\[\\[\\\\*"${this.#mark}([^"\\\\]+)\\\\*"\\]\\]`, 'g');
  #count = 0;

  /**
   * The value of a member, or of an element, of the text `bytes`. The scan has bounded how much is in it.
   * Throws body_too_large if it is too long, or for too many numbers that a double does not hold.
   */
  parse(name: string, bytes: Buffer, { start, end, numbers }: Member): unknown {
    if (end - start > LONGEST) throw tooLarge(name, `more than ${LONGEST} bytes`);
    let text = '';
    let from = start;
    for (let at = 0; at < numbers.length; at += 2) {
      const [begin, after] = [numbers[at]!, numbers[at + 1]!];
      const number = bytes.toString('latin1', begin, after);
      if (String(Number(number)) === number) continue;
      this.#count += 1;
      if (this.#count > MOST_NUMBERS) throw tooLarge('request', 'too many numbers no double holds');
      text += `${bytes.toString('utf8', from, begin)}[["${this.#mark}${number}"]]`;
      from = after;
    }
    return JSON.parse(text + bytes.toString('utf8', from, end));
  }

  /** The JSON text of a value. Numbers that `parse` put into it are written as they came. */
  stringify(value: unknown): string {
    const text = JSON.stringify(value);
    return this.#count === 0 ? text : text.replace(this.#pattern, '$1');
  }
}
