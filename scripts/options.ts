/** How the scripts read their command line. */
import { readFileSync } from 'node:fs';
import { type ParseArgsConfig, parseArgs } from 'node:util';

/** Ends the script with one line and exit code 2: nothing has been done. */
export function refuse(reason: string): never {
  process.stderr.write(`${reason} (--help: what this script takes)\n`);
  process.exit(2);
}

/**
 * Options and positionals of the script in `file` (import.meta.filename). `--help` prints the comment at its
 * head. Refuses what the script does not take: an unknown option, and for an option whose default is a number
 * anything but one.
 */
export function readOptions<const Config extends ParseArgsConfig>(
  file: string,
  config: Config,
): ReturnType<typeof parseArgs<Config>> {
  if (process.argv.slice(2).includes('--help')) {
    const [, head = ''] = /\/\*\*([\s\S]*?)\*\//.exec(readFileSync(file, 'utf8')) ?? [];
    process.stdout.write(`${head.replaceAll(/^ ?\* ?/gm, '').trim()}\n`);
    process.exit(0);
  }
  const parsed = parse(config);
  for (const [name, { default: usual }] of Object.entries(config.options ?? {})) {
    const value = (parsed.values as Readonly<Record<string, unknown>>)[name];
    if (isNumber(usual) && !isNumber(value)) refuse(`--${name} takes a number, not ${JSON.stringify(value)}`);
  }
  return parsed;
}

const isNumber = (text: unknown): boolean => typeof text === 'string' && /^\d+(?:\.\d+)?$/.test(text);

function parse<const Config extends ParseArgsConfig>(config: Config): ReturnType<typeof parseArgs<Config>> {
  try {
    return parseArgs(config);
  } catch (thrown) {
    // parseArgs throws only what is wrong with the command line.
    return refuse((thrown as Error).message.replaceAll('\n', ' '));
  }
}
