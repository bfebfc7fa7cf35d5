/**
 * Looks into the elements of a list of a request, where their text says that there may be something to see.
 */
import { PrivatemodeError } from '../errors.ts';
import { isParsable, type Member, scanInTurns } from '../json/scan.ts';

/**
 * ASCII letters and the underscore, escaped. A name may be written with them; no encoder writes text so, and
 * escapes of other characters are no reason to look.
 */
const ESCAPED_LETTERS = ['\\u004', '\\u005', '\\u006', '\\u007'];

const includesAny = (bytes: Buffer, words: readonly string[]): boolean =>
  words.some((word) => bytes.includes(word, 0, 'latin1'));

/**
 * Parses those elements of the list that hold one of the words, or an escaped letter. Each byte becomes one
 * character (latin1). Yields as the scan does. A member that is no list has no elements. Throws
 * body_too_large if such an element holds too much to be parsed in one go (isParsable).
 */
export function* parsedElements(
  body: Buffer,
  { kind, start, end }: Member,
  words: readonly string[],
): Generator<undefined, unknown[]> {
  const list = body.subarray(start, end);
  const wanted = [...words, ...ESCAPED_LETTERS];
  if (kind !== 'array' || !includesAny(list, wanted)) return [];
  const { members } = yield* scanInTurns(list, { array: true });
  const parsed: unknown[] = [];
  for (const member of members) {
    const element = list.subarray(member.start, member.end);
    if (!includesAny(element, wanted)) continue;
    if (!isParsable(member)) {
      throw new PrivatemodeError('body_too_large', 'an element of a list of the request holds too much');
    }
    parsed.push(JSON.parse(element.toString('latin1')));
    yield;
  }
  return parsed;
}
