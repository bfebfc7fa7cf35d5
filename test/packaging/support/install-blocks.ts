/** The shell blocks of pages: what people copy is what the checks run. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../support/processes/tools.ts';

/** Every block of a page below docs by the name in the comment before it. */
export const blocksOf = (page: string): ReadonlyMap<string, string> =>
  new Map(
    [
      ...readFileSync(join(ROOT, 'docs', page), 'utf8').matchAll(
        /^ *<!-- block: ([a-z-]+) -->\n *```sh\n([^`]+)```$/gm,
      ),
    ].map(([, name, text]) => [name as string, text as string]),
  );

/** One block as it is written. Throws where the page has none of that name. */
export function blockOf(page: string, name: string): string {
  const text = blocksOf(page).get(name);
  if (text === undefined) throw new Error(`docs/${page} has no block ${name}`);
  return text;
}

export const installBlock = (name: string): string => blockOf('install.md', name);

/** What prepares, and the last command, which starts the proxy; continued lines are joined. */
export function splitInstallBlock(name: string): { readonly prepare: string; readonly start: string } {
  const commands = installBlock(name)
    .replaceAll(/\\\n\s*/g, '')
    .trim()
    .split('\n');
  return { prepare: commands.slice(0, -1).join('\n'), start: commands.at(-1) as string };
}
