/** Commands of the program: what a command declares, and how its command line is read and run. */
import type { Clock } from '../clock.ts';
import { parseArgv } from '../config/argv.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { fitHelp } from '../config/help.ts';
import { BOOLEAN, type Flag, type Given, setting } from '../config/setting.ts';
import { invalid } from '../config/values.ts';
import { printable } from '../text.ts';

/** Where a command writes: a terminal, or a stream in place of a terminal. */
export interface Output {
  write(text: string): unknown;
  /** `once` is absent if no write can fail. The event `error` means that the reader is gone. */
  once?(event: 'error' | 'drain', listener: () => void): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

export interface Io {
  readonly stdout: Output;
  readonly stderr: Output;
  readonly clock: Clock;
  /** What starts the program, for lines that users copy. Absent if the proxy ends with the command. */
  readonly program?: string;
}

/** A parsed command line, as a command gets it. */
export interface Invocation {
  readonly given: Given;
  /** The words after the command's name: one of the forms in `words` of the command. */
  readonly words: readonly string[];
  /** The arguments after `--`, if the command takes them. */
  readonly rest: readonly string[];
  readonly io: Io;
  readonly env: Environment;
}

export interface Command {
  /** All flags that the command takes, including `help`. */
  readonly flags: readonly Flag[];
  /** Whether environment variables set the command's flags, just as variables set the flags of the proxy. */
  readonly takesEnvironment?: true;
  /**
   * The forms of words that may follow the command's name. A word in capitals stands for any word. A word
   * with … stands for one or more words.
   */
  readonly words?: readonly (readonly string[])[];
  /** Whether arguments after `--` are for another program. */
  readonly takesRest?: true;
  /**
   * The end of the message about a flag that the command does not take. `words`: the command and its words,
   * as they were given.
   */
  readonly otherFlags?: (words: string) => string;
  /** The help text, not wrapped yet. */
  readonly help: () => string;
  /** Returns the exit code. Throws PrivatemodeError if the command cannot do its work. */
  readonly run: (asked: Invocation) => Promise<number> | number;
}

/** The help flag, for commands that do not take the flags of the proxy. */
export const HELP = setting('help', BOOLEAN, { short: 'h', help: 'Print this help.' });

/**
 * Runs the command called `name`. `line`: the arguments after the name. Returns the exit code. Throws
 * config_invalid, and what the command throws.
 */
export async function runCommand(
  name: string,
  { flags, takesEnvironment, words: forms = [[]], takesRest, otherFlags, help, run }: Command,
  line: readonly string[],
  { io, env }: Pick<Invocation, 'io' | 'env'>,
): Promise<number> {
  const end = takesRest && line.includes('--') ? line.indexOf('--') : line.length;
  const argv = line.slice(0, end);
  if (argv.includes('--help') || argv.includes('-h')) {
    io.stdout.write(fitHelp(help(), io.stdout.columns));
    return 0;
  }
  const flag = argv.findIndex((word) => word.startsWith('-'));
  const before = flag === -1 ? argv : argv.slice(0, flag);
  const form = forms.find((wanted) =>
    wanted.every((word, i) => word === before[i] || (/^[A-Z]/.test(word) && before[i])),
  );
  if (form === undefined) {
    const all = forms.map((wanted) => `${name} ${wanted.join(' ')}`).join(', ');
    throw invalid(`${name} takes one command before its flags: ${all} (see ${name} --help)`);
  }
  const words = form.at(-1)?.endsWith('…') ? before : before.slice(0, form.length);
  let parsed: Given;
  try {
    parsed = parseArgv(argv.slice(words.length), flags);
  } catch (thrown) {
    if (otherFlags === undefined) throw thrown;
    throw invalid(`${(thrown as Error).message}; ${otherFlags([name, ...words].join(' '))}`);
  }
  const given = takesEnvironment ? withEnvironment(parsed, env) : parsed;
  for (const warning of parsed.warnings) io.stderr.write(`Warning: ${printable(warning)}\n`);
  return run({ given: { ...given, warnings: [] }, words, rest: line.slice(end + 1), io, env });
}
