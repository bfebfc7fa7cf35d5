/** What a command of the program is, and how each of them is run. */
import { parseArgv } from '../config/argv.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { fitHelp } from '../config/help.ts';
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
  /** The words behind its name, one of those that `words` lists. */
  readonly words: readonly string[];
  /** What stands behind `--`, where it takes that. */
  readonly rest: readonly string[];
  readonly io: Io;
  readonly env: Environment;
}

export interface Command {
  /** All that it takes, `help` among them. */
  readonly flags: readonly Flag[];
  /** Whether variables set its flags, too, as they set those of the proxy. */
  readonly takesEnvironment?: true;
  /** What may follow its name, one of these: words as they stand, and one in capitals for any other. */
  readonly words?: readonly (readonly string[])[];
  /** Whether what follows `--` is for another program. */
  readonly takesRest?: true;
  /** What to do with a flag that it does not take, behind the words of its line. */
  readonly otherFlags?: (words: string) => string;
  /** As helpPage gives it. */
  readonly help: () => string;
  /** Gives the exit code. Throws PrivatemodeError where it cannot do what it was asked. */
  readonly run: (asked: Asked) => Promise<number> | number;
}

/** For the flags of a command that does not take those of the proxy. */
export const HELP = setting('help', BOOLEAN, { short: 'h', help: 'Print this help.' });

/** Runs the command of that name with what follows it; gives the exit code. Throws config_invalid, and what the command throws. */
export async function runCommand(
  name: string,
  { flags, takesEnvironment, words: forms = [[]], takesRest, otherFlags, help, run }: Command,
  line: readonly string[],
  asked: Pick<Asked, 'io' | 'env'>,
): Promise<number> {
  const end = takesRest && line.includes('--') ? line.indexOf('--') : line.length;
  const argv = line.slice(0, end);
  const helpAt = argv.slice(0, Math.max(...forms.map(({ length }) => length))).findIndex(isHelp); // it stands for the words, too
  const form = forms.find((wanted) =>
    wanted.every((word, i) => (/^[A-Z]+$/.test(word) ? /^[^-]/.test(argv[i] ?? '') : word === argv[i])),
  );
  if (helpAt === -1 && form === undefined) {
    const begun = forms.filter(([word]) => word === argv[0]);
    const all = (begun.length > 0 ? begun : forms).map((wanted) => `${name} ${wanted.join(' ')}`).join(', ');
    throw invalid(`${name} takes one command before its flags: ${all} (see ${name} --help)`);
  }
  const words = argv.slice(0, form?.length);
  const rest = argv.slice(helpAt === -1 ? words.length : helpAt + 1);
  let parsed: Given;
  try {
    parsed = parseArgv(rest, flags);
  } catch (thrown) {
    if (otherFlags === undefined) throw thrown;
    throw invalid(`${(thrown as Error).message}; ${otherFlags([name, ...words].join(' '))}`);
  }
  const given = takesEnvironment ? withEnvironment(parsed, asked.env) : parsed;
  if (helpAt !== -1 || given.values.get('help') === 'true') {
    asked.io.stdout.write(fitHelp(help(), asked.io.stdout.columns));
    return 0;
  }
  return run({ ...asked, given, words, rest: line.slice(end + 1) });
}

const isHelp = (word: string): boolean => word === '--help' || word === '-h';
