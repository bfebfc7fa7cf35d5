/** What a command of the program is, and how each of them is run. */
import { parseArgv } from '../config/argv.ts';
import type { Environment } from '../config/environment.ts';
import { BOOLEAN, type Flag, type Given, setting } from '../config/setting.ts';
import { invalid } from '../config/values.ts';

/** A terminal, or what stands for one. */
export interface Output {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

export interface Io {
  readonly stdout: Output;
  readonly stderr: Output;
  /** Default: the system's clock. */
  readonly now?: () => Date;
}

/** What a command was asked. */
export interface Asked {
  readonly given: Given;
  /** The words behind its name, as many as `words` lists. */
  readonly words: readonly string[];
  readonly io: Io;
  readonly env: Environment;
}

export interface Command {
  /** All that it takes, `help` among them. */
  readonly flags: readonly Flag[];
  /** What follows its name: a word as it stands, or one in capitals for any other. */
  readonly words?: readonly string[];
  readonly help: () => string;
  /** Gives the exit code. Throws PrivatemodeError where it cannot do what it was asked. */
  readonly run: (asked: Asked) => Promise<number> | number;
}

/** For the flags of a command that does not take those of the proxy. */
export const HELP = setting('help', BOOLEAN, { short: 'h', help: 'Print this help.' });

/** Runs the command of that name with what follows it; gives the exit code. Throws config_invalid, and what the command throws. */
export async function runCommand(
  name: string,
  { flags, words: wanted = [], help, run }: Command,
  argv: readonly string[],
  asked: Pick<Asked, 'io' | 'env'>,
): Promise<number> {
  const end = wanted.length === 0 ? 0 : argv.findIndex((word) => word.startsWith('-'));
  const words = argv.slice(0, end === -1 ? argv.length : end);
  const given = parseArgv(argv.slice(words.length), flags);
  if (given.values.get('help') === 'true') {
    asked.io.stdout.write(help());
    return 0;
  }
  const isAsWanted = (word: string, i: number): boolean => word === words[i] || /^[A-Z]+$/.test(word);
  if (words.length !== wanted.length || !wanted.every(isAsWanted))
    throw invalid(`${name} takes one command: ${name} ${wanted.join(' ')} (see ${name} --help)`);
  return run({ ...asked, given, words });
}
