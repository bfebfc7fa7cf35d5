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

/** The candidate that `word` was most likely meant to be; undefined where there is none. */
export const nearest = (word: string, candidates: readonly string[]): string | undefined =>
  nearestOf(word, candidates)[0];

/**
 * The candidates that `word` was most likely meant to be, the closest first: those that are equal but for case, dashes and
 * underscores, else one or two that begin with it, else those one typing mistake away (two in words of more than five letters).
 */
export function nearestOf(word: string, candidates: readonly string[]): readonly string[] {
  const plain = plainly(word);
  const allowed = plain.length > 5 ? 2 : 1;
  const byMistakes = Map.groupBy(candidates, (meant) => mistakesIn(plain, plainly(meant), allowed));
  const longer = candidates
    .filter((meant) => plain.length >= 3 && plainly(meant).startsWith(plain))
    .sort((a, b) => a.length - b.length);
  const begun = longer.length <= 2 ? longer : [];
  const groups = [byMistakes.get(0), begun, byMistakes.get(1), byMistakes.get(2)];
  return groups.find((group) => group !== undefined && group.length > 0) ?? [];
}

const plainly = (word: string): string => word.toLowerCase().replace(/[-_]/g, '');

/**
 * How many letters were inserted, left out, replaced, or swapped with their neighbour (optimal string alignment); infinite
 * beyond `allowed`.
 */
function mistakesIn(word: string, meant: string, allowed: number): number {
  if (word === meant) return 0;
  if (allowed === 0) return Number.POSITIVE_INFINITY;
  if (word[0] === meant[0]) return mistakesIn(word.slice(1), meant.slice(1), allowed);
  const after = (letters: number, meantLetters: number): number =>
    1 + mistakesIn(word.slice(letters), meant.slice(meantLetters), allowed - 1);
  const swapped = word[0] === meant[1] && word[1] === meant[0];
  return Math.min(after(1, 0), after(0, 1), after(1, 1), swapped ? after(2, 2) : Number.POSITIVE_INFINITY);
}
