/** What a mistyped name was most likely meant to be: of flags, settings, commands and options. */

/**
 * The candidate that `word` was most likely meant to be: equal but for case, dashes and underscores, or one typing mistake
 * away (two in words of more than five letters), or the only one that begins with it. Undefined where there is none.
 */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const plain = plainly(word);
  const allowed = plain.length > 5 ? 2 : 1;
  const byMistakes = Map.groupBy(candidates, (meant) => mistakesIn(plain, plainly(meant), allowed));
  const close = [0, 1, 2].flatMap((mistakes) => byMistakes.get(mistakes) ?? []);
  const longer = candidates.filter((meant) => plain.length >= 3 && plainly(meant).startsWith(plain));
  return close[0] ?? (longer.length === 1 ? longer[0] : undefined);
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
