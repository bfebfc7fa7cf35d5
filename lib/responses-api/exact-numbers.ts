/**
 * Keeps numbers as they are written, although they pass through JSON.parse and JSON.stringify: a schema may
 * hold 18446744073709551615, which a double cannot hold. During the translation, a list with a secret mark
 * takes the place of each number that a double cannot hold. A list is refused wherever a text or an object is
 * expected.
 */
import { randomBytes } from '../crypto/random.ts';
import type { Member } from '../json/scan.ts';
import { tooLarge } from './request-refusal.ts';

/** The most bytes to parse in one go. Chat requests have the same limit (lib/pipeline/media-urls.ts). */
const LONGEST = 32 * 1024 * 1024;
/** The most numbers of a request that a double cannot hold. Each such number becomes three values. */
const MOST_NUMBERS = 20_000;
/** The length of the secret mark in bytes, so long that no text of a client can contain the mark. */
const MARK_BYTES = 16;

export class ExactNumbers {
  readonly #mark = randomBytes(MARK_BYTES).toString('hex');
  /** Finds marked numbers, also in lists that were written into a string, where quotes are escaped. */
  readonly #pattern = new RegExp(`\\[\\[\\\\*"${this.#mark}([^"\\\\]+)\\\\*"\\]\\]`, 'g');
  #count = 0;

  /**
   * Parses a member, or an element, of the JSON text `bytes`. The scan has limited the values in the text.
   * Throws body_too_large if the member is too long, or if it has too many numbers that a double cannot hold.
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

  /** The JSON text of a value. Numbers that `parse` replaced appear in the text as they were written. */
  stringify(value: unknown): string {
    const text = JSON.stringify(value);
    return this.#count === 0 ? text : text.replace(this.#pattern, '$1');
  }
}
