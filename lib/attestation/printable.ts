/**
 * Text that comes from the remote, made safe for terminals and logs: control characters and invisible separators are
 * written as escapes, and what is endless is cut at `limit` characters.
 */
export function printable(text: string, limit = 1000): string {
  const cut = text.length > limit ? `${text.slice(0, limit)}…` : text;
  return cut.replace(
    /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  );
}
