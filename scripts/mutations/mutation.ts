/**
 * A fault that is planted to see whether the tests notice it: what each row of the tables beside this file
 * is.
 */

export interface Mutation {
  /** The defence that it takes away, and what passes then, for a person. */
  readonly defence: string;
  readonly file: string;
  /** Each `find` occurs exactly once in the file. */
  readonly edits: readonly { readonly find: string; readonly replace: string }[];
  /** Full names of tests, with those of their suites; each must go red. */
  readonly tests: readonly { readonly file: string; readonly names: readonly string[] }[];
}

/** The source with the mutation in it. Throws where it does not apply any more. */
export function mutated(source: string, { file, edits }: Pick<Mutation, 'file' | 'edits'>): string {
  return edits.reduce((text, { find, replace }) => {
    if (text.split(find).length !== 2) throw new Error(`${file} does not contain this exactly once: ${find}`);
    return text.replace(find, () => replace);
  }, source);
}
