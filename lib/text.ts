/** Text for people: escaped for terminals, counted, coloured, and compared with known words. */

/** Characters that a terminal obeys or nobody sees: controls, bidi, surrogates, private use, separators. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029]/gu;

/** Cuts the text at `limit` characters, and escapes unprintable characters in the form `\u{1b}`. */
export function printable(text: string, limit = 1000): string {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return cut.replace(UNPRINTABLE, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

export const isPrintable = (text: string): boolean => text.search(UNPRINTABLE) === -1;

/** Escapes unprintable characters in JSON, as in `\u009b`. Line feeds stay: they only separate values. */
export const printableJson = (json: string): string =>
  json.replace(UNPRINTABLE, (character) =>
    character.replace(/[^\n]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );

/** The value as JSON text, without any character that controls a terminal. */
export const safeJson = (value: unknown, indentation?: number): string =>
  printableJson(JSON.stringify(value, undefined, indentation));

/** The word as a shell reads it, quoted if necessary. */
export const shellWord = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;

/** The count with its noun, as in `1 check` or `2 checks`. */
export const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

/** Whether an output is a terminal with colours that the user has not switched off (https://no-color.org). */
export const hasColours = ({ isTTY }: { isTTY?: boolean | undefined }, env: NodeJS.ProcessEnv): boolean =>
  isTTY === true && (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb';

const STYLES = { good: 32, bad: 31, caution: 33, plain: 2, bold: 1 } as const;
export type Style = keyof typeof STYLES;
export type Paint = (style: Style, text: string) => string;

/** Returns a function that colours a text, or that leaves a text unchanged if `colours` is false. */
export const painter =
  (colours: boolean): Paint =>
  (style, text) =>
    colours ? `\u001b[${STYLES[style]}m${text}\u001b[0m` : text;

/** The first candidate within `mistakes` of `word`: a letter inserted, missing, replaced or swapped. */
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
