/** The shell blocks of docs/install.md: what people copy is what the checks run. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../support/processes/tools.ts';

/** Every block by the name in the comment before it. */
export const INSTALL_BLOCKS: ReadonlyMap<string, string> = new Map(
  [
    ...readFileSync(join(ROOT, 'docs/install.md'), 'utf8').matchAll(
      /^<!-- block: ([a-z-]+) -->\n```sh\n([^`]+)```$/gm,
    ),
  ].map(([, name, text]) => [name as string, text as string]),
);

/** One block as it is written. Throws where there is none of that name. */
export function installBlock(name: string): string {
  const text = INSTALL_BLOCKS.get(name);
  if (text === undefined) throw new Error(`docs/install.md has no block ${name}`);
  return text;
}

/** What prepares, and the last command, which starts the proxy; continued lines are joined. */
export function splitInstallBlock(name: string): { readonly prepare: string; readonly start: string } {
  const commands = installBlock(name)
    .replaceAll(/\\\n\s*/g, '')
    .trim()
    .split('\n');
  return { prepare: commands.slice(0, -1).join('\n'), start: commands.at(-1) as string };
}
