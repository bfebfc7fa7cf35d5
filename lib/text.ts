/** Text for people: what may reach a screen as it is, in which number and colours, and what a mistyped name was meant to be. */

/**
 * What a terminal obeys or nobody sees: control characters (C0, DEL, C1), formats (bidi controls, invisible characters), lone
 * surrogates, private characters, and the separators of lines and paragraphs.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu;

/** The text with each such character as `\u{1b}`, cut at `limit` characters. */
export function printable(text: string, limit = 1000): string {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return cut.replace(UNPRINTABLE, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

/** Several lines, each of them so, and of any length. */
export const printableLines = (text: string): string =>
  text
    .split('\n')
    .map((line) => printable(line, Number.POSITIVE_INFINITY))
    .join('\n');

/** Whether nothing in the text is such a character. */
export const isPrintable = (text: string): boolean => text.search(UNPRINTABLE) === -1;

/**
 * JSON text that means the same, with what JSON leaves of such characters as `\u009b`. Its line ends stay, which stand between values
 * only.
 */
export const printableJson = (json: string): string =>
  json.replace(UNPRINTABLE, (character) =>
    character === '\n' ? character : character.split('').map(unitEscape).join(''),
  );

const unitEscape = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** The value as JSON of which no terminal obeys anything. */
export const safeJson = (value: unknown, indentation?: number): string =>
  printableJson(JSON.stringify(value, undefined, indentation));

/** A word for a shell, quoted where it has to be. */
export const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** As `1 check`, `2 checks`. */
export const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** Whether to paint what is written there: a terminal that shows colours, and nobody who wants none (https://no-color.org). */
export const hasColours = (
  { isTTY }: { readonly isTTY?: boolean | undefined },
  env: Readonly<Record<string, string | undefined>>,
): boolean => isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';

const STYLES = { good: 32, bad: 31, caution: 33, plain: 2, bold: 1 } as const;

export type Style = keyof typeof STYLES;
export type Paint = (style: Style, text: string) => string;

/** Paints what it is given, or leaves it as it is. */
export const painter =
  (colours: boolean): Paint =>
  (style, text) =>
    colours ? `\u001b[${STYLES[style]}m${text}\u001b[0m` : text;

/**
 * The first candidate that `word` is at most so many typing mistakes away from: letters inserted, left out, replaced, or swapped with
 * their neighbour. Undefined where there is none.
 */
export const nearest = (word: string, candidates: readonly string[], mistakes = 1): string | undefined =>
  candidates.find((meant) => isWithin(word, meant, mistakes));

function isWithin(word: string, meant: string, mistakes: number): boolean {
  if (word === meant) return true;
  if (mistakes === 0) return false;
  if (word[0] === meant[0]) return isWithin(word.slice(1), meant.slice(1), mistakes);
  const after = (letters: number, meantLetters: number): boolean =>
    isWithin(word.slice(letters), meant.slice(meantLetters), mistakes - 1);
  const swapped = word[0] === meant[1] && word[1] === meant[0];
  return after(1, 0) || after(0, 1) || after(1, 1) || (swapped && after(2, 2));
}
