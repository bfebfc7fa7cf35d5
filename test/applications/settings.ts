/** What the pages of docs tell people to set in agents and SDKs, for tests to set just that. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../support/processes/tools.ts';

export interface Place {
  /** http://HOST:PORT of the proxy. */
  readonly url: string;
  readonly model: string;
}

const PAGES = ['agents', 'applications']
  .map((name) => readFileSync(join(ROOT, `docs/${name}.md`), 'utf8'))
  .join('\n');

/**
 * The first block of that language below the heading, for this proxy and model. Throws where there is none.
 */
export function settings(heading: string, language: string, { url, model }: Place): string {
  const section = PAGES.split(/^##? /m).find((text) => text.startsWith(`${heading}\n`)) ?? '';
  const block = new RegExp(`^\`\`\`${language}\\n([^\`]+)\`\`\`$`, 'm').exec(section)?.[1];
  if (block === undefined) throw new Error(`no page has ${language} below ${heading}`);
  return block.replaceAll('http://127.0.0.1:8080', url).replaceAll(/\bMODEL\b/g, model);
}

/** The variables that lines of a shell block set, exported or in front of a command. */
export function variables(shell: string): Record<string, string> {
  return Object.fromEntries(
    [...shell.matchAll(/\b([A-Z][A-Z_]*)=(\S+)/g)].map(([, name, value]) => [
      name as string,
      value as string,
    ]),
  );
}

/** The arguments of the line that starts with `program`, without single quotes. */
export function argumentsOf(program: string, shell: string): string[] {
  const line = shell.split('\n').find((text) => text.startsWith(`${program} `));
  if (line === undefined) throw new Error(`no line starts with ${program}`);
  return line.replaceAll("'", '').split(' ').slice(1);
}
