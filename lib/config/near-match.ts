/**
 * The candidate that `word` was most likely meant to be: equal but for case, dashes and underscores, or one typing mistake
 * away (two in words of more than five letters), or the only one that begins with it. Undefined where there is none.
 */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const plain = plainly(word);
  if (plain === '') return undefined;
  const allowed = plain.length > 5 ? 2 : 1;
  const [best] = candidates
    .map((candidate) => ({ candidate, mistakes: distance(plain, plainly(candidate)) }))
    .filter(({ mistakes }) => mistakes <= allowed)
    .sort((a, b) => a.mistakes - b.mistakes);
  if (best !== undefined) return best.candidate;
  const longer =
    plain.length < 3 ? [] : candidates.filter((candidate) => plainly(candidate).startsWith(plain));
  return longer.length === 1 ? longer[0] : undefined;
}

const plainly = (word: string): string => word.toLowerCase().replace(/[-_]/g, '');

/** Letters to insert, remove, replace, or swap with their neighbour (optimal string alignment). */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return Number.POSITIVE_INFINITY;
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (last[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
          ? (before[j - 2] as number) + 1
          : replaced;
      row.push(Math.min(replaced, swapped, (last[j] as number) + 1, (row[j - 1] as number) + 1));
    }
    [before, last] = [last, row];
  }
  return last[b.length] as number;
}
