/** Commands of the program: what a command declares, and how its command line is read and run. */
import type { Clock } from '../clock.ts';
import { parseArgv } from '../config/argv.ts';
import { type Environment, withEnvironment } from '../config/environment.ts';
import { fitHelp } from '../config/help.ts';
import { BOOLEAN, type Flag, type Given, setting } from '../config/setting.ts';
import { invalid } from '../config/values.ts';
import type { PrivatemodeError } from '../errors.ts';
import { printable } from '../text.ts';

/** A terminal, or a stream in its place. */
export interface Output {
  write(text: string): unknown;
  /** Absent where nothing can fail. An error means that the reader is gone. */
  once?(event: 'error' | 'drain', listener: () => void): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

export interface Io {
  readonly stdout: Output;
  readonly stderr: Output;
  readonly clock: Clock;
  /** How a person starts the program again, for lines to copy; absent where its proxy ends with it. */
  readonly program?: string;
}

/** What the command line asks of a command. */
export interface Invocation {
  readonly given: Given;
  /** The arguments after the command's name. */
  readonly argv: readonly string[];
  /** The words after the command's name: one of the forms in `words` of the command. */
  readonly words: readonly string[];
  /** The arguments after `--`, if the command takes them. */
  readonly rest: readonly string[];
  readonly io: Io;
  readonly env: Environment;
}

export interface Command {
  /** All flags that it takes, including `help`. */
  readonly flags: readonly Flag[];
  /** Whether environment variables set its flags too, as they do for the proxy. */
  readonly takesEnvironment?: true;
  /**
   * The forms of words that may follow its name. A word in capitals stands for any word, and … after it for
   * one or more.
   */
  readonly words?: readonly (readonly string[])[];
  /** Whether arguments after `--` are for another program. */
  readonly takesRest?: true;
  /**
   * The end of the message about a flag that it does not take. `words`: the command and its words, as they
   * were given.
   */
  readonly otherFlags?: (words: string) => string;
  /**
   * The help text, as `helpPage` gives it. `word`: the first word after the command's name, for commands with
   * a page per word.
   */
  readonly help: (word?: string) => string;
  /** Returns the exit code. Throws PrivatemodeError if the command cannot do its work. */
  readonly run: (asked: Invocation) => Promise<number> | number;
}

/** The help flag, for commands that do not take the flags of the proxy. */
export const HELP = setting('help', BOOLEAN, { short: 'h', help: 'Print this help.' });

/**
 * Runs the command of that name. `line`: the arguments after the name. Returns the exit code. Throws
 * config_invalid, and what the command throws.
 */
export async function runCommand(
  name: string,
  { flags, takesEnvironment, words: forms = [[]], takesRest, otherFlags, help, run }: Command,
  line: readonly string[],
  asked: Pick<Invocation, 'io' | 'env'>,
): Promise<number> {
  const end = takesRest && line.includes('--') ? line.indexOf('--') : line.length;
  const argv = line.slice(0, end);
  // --help may stand in place of the words, too.
  const helpAt = argv.slice(0, Math.max(...forms.map(({ length }) => length))).findIndex(isHelp);
  const form = forms.find((wanted) => wanted.every((word, i) => isWord(word, argv[i] ?? '')));
  if (helpAt === -1 && form === undefined) throw missingWords(name, forms, argv);
  const many = form?.at(-1)?.endsWith('…') ? argv.slice(form.length) : [];
  const more = many.findIndex((word) => word.startsWith('-'));
  const words = argv.slice(0, (form?.length ?? 0) + (more === -1 ? many.length : more));
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
    asked.io.stdout.write(fitHelp(help(argv[0]), asked.io.stdout.columns));
    return 0;
  }
  for (const warning of parsed.warnings) asked.io.stderr.write(`Warning: ${printable(warning)}\n`);
  return run({ ...asked, given: { ...given, warnings: [] }, words, rest: line.slice(end + 1), argv: line });
}

/**
 * Whether `word` fits `wanted`, one word of a form. A word in capitals fits any word that is not empty and no
 * flag; any other word fits only itself.
 */
const isWord = (wanted: string, word: string): boolean =>
  /^[A-Z]+…?$/.test(wanted) ? word !== '' && !word.startsWith('-') : wanted === word;

function missingWords(
  name: string,
  forms: readonly (readonly string[])[],
  argv: readonly string[],
): PrivatemodeError {
  const begun = forms.find(([word]) => word === argv[0]);
  const place = begun?.[1]?.replace('…', '');
  if (begun !== undefined && place !== undefined)
    return invalid(
      `${name} ${begun[0]} needs a ${place} before its flags: ${name} ${begun.join(' ')} (see ${name} ${begun[0]} --help)`,
    );
  const all = forms.map((wanted) => `${name} ${wanted.join(' ')}`).join(', ');
  const [typed = ''] = argv;
  const unknown = /^[a-z]{1,16}$/.test(typed) ? `${name} has no command "${typed}"; it` : name;
  return invalid(`${unknown} takes one command before its flags: ${all} (see ${name} --help)`);
}

const isHelp = (word: string): boolean => word === '--help' || word === '-h';
