/** Files that a run wrote, searched for canaries. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { canaryIn, KEY_MARK, MARK } from '../support/doors/canaries.ts';

/**
 * Where prompts or keys belong, and what must not be there all the same. Paths are those below the searched
 * directory.
 */
const EXPECTED: readonly { readonly path: RegExp; readonly why: string; readonly forbidden?: string }[] = [
  {
    path: /\/requests\/[\d-]+\/[\d_.-]+_(req|resp)\.txt$/,
    why: '--dump-requests was given: prompts, but no credentials',
    forbidden: KEY_MARK,
  },
  { path: /\/privatemode-key-\w+\/key$/, why: 'a test wrote the file that --api-key=@file names' },
];

/**
 * Every file below `directory` that holds a canary and is not expected to, with the number of bytes before
 * it.
 */
export function canariesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(directory, join(parentPath, name)))
    .flatMap((path) => {
      const expected = EXPECTED.find((row) => row.path.test(path));
      const mark = expected === undefined ? MARK : expected.forbidden;
      const at = mark === undefined ? -1 : canaryIn(readFileSync(join(directory, path)), mark);
      return at < 0 ? [] : [`${path}, at byte ${at}`];
    })
    .sort();
}
