/** Text of others, made safe for terminals and logs: the one rule for what may reach a screen as it is. */

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
