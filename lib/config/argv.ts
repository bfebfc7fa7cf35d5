/** Reads a command line as Go's pflag does, because existing deployments were written for it. */
import mri from 'mri';
import type { PrivatemodeError } from '../errors.ts';
import { nearest } from '../text.ts';
import { FLAGS } from './flags.ts';
import type { Flag, FlagAlias, Given } from './setting.ts';
import { invalid, parseBoolean } from './values.ts';

interface Spelling {
  readonly flag: Flag;
  readonly alias?: FlagAlias;
}

/** By what stands on the command line: `--name`, or `-n`. */
type Spellings = ReadonlyMap<string, Spelling>;

function spellingsOf(flags: readonly Flag[]): Spellings {
  const known = new Map<string, Spelling>();
  for (const flag of flags) {
    known.set(`--${flag.name}`, { flag });
    if (flag.short !== undefined) known.set(`-${flag.short}`, { flag });
    for (const alias of flag.aliases ?? []) known.set(`--${alias.name}`, { flag, alias });
  }
  return known;
}

/**
 * Reads `--x v`, `--x=v`, `-l v`, `-lv` and `-l=v`. A flag with a value takes the next argument, whatever it
 * starts with; a boolean takes a value only after `=`. `flags`: the table to read by; `commands`: undefined
 * if none may stand here. Does not check values. Throws config_invalid; no message quotes what may be a key.
 */
export function parseArgv(
  argv: readonly string[],
  flags: readonly Flag[] = FLAGS,
  commands?: readonly string[],
): Given {
  const known = spellingsOf(flags);
  const warnings = new Set<string>();
  const lines: string[] = [];
  const rest = [...argv];
  let before: Parameters<typeof stray>[2];
  for (let arg = rest.shift(); arg !== undefined && arg !== '--'; arg = rest.shift()) {
    const [, spelled = '', attached = ''] = /^(--[^=]+|-[^-=])(.*)$/s.exec(arg) ?? [];
    // A long name behind one dash is no short flag with its value, whatever its first letter means.
    const isLong = arg.startsWith('--') || !known.has(`-${arg.split('=', 1)}`);
    const found = isLong ? known.get(spelled) : undefined;
    if (found === undefined)
      throw arg.startsWith('-') && arg !== '-' ? unknown(arg, known) : stray(arg, known, before, commands);
    const { flag, alias } = found;
    const isBoolean = flag.type === 'boolean';
    // Several letters in one argument: those that are no value are flags of their own.
    const isRun = isBoolean && attached !== '' && !attached.startsWith('=');
    if (isRun) rest.unshift(`-${attached}`);
    const own = attached === '' || isRun ? undefined : attached.replace(/^=/, '');
    const text = own ?? (isBoolean ? 'true' : rest.shift());
    if (text === undefined) throw invalid(`flag needs an argument: ${spelled} ${flag.value ?? 'VALUE'}`);
    const isTrue = isBoolean && parseBoolean(spelled, text) !== (alias?.inverted ?? false);
    const { how, why } = flag.retired ?? {};
    if (how === 'refused' && isTrue) throw invalid(`${spelled} is refused: ${why}`);
    const now = alias?.inverted ? `--${flag.name} (which says the opposite)` : `--${flag.name}`;
    if (why !== undefined) warnings.add(`${spelled} is retired and does nothing: ${why}`);
    else if (alias?.deprecated) warnings.add(`${spelled} is deprecated; write ${now}`);
    lines.push(`--${flag.name}=${isBoolean ? isTrue : text}`);
    before = { spelled, text, isSwitch: isBoolean && own === undefined };
  }
  if (rest.length > 0) throw invalid('unexpected argument behind --: every setting is a flag in front of it');

  const names = flags.map(({ name }) => name);
  const { _, ...read } = mri<Record<string, string | string[]>>(lines, { string: names });
  const values = new Map<string, string>();
  for (const [name, given] of Object.entries(read)) {
    const texts = [given].flat();
    const isList = flags.some((flag) => flag.name === name && flag.type === 'list');
    if (!isList && new Set(texts).size > 1)
      warnings.add(`--${name} is given more than once, and only the last counts`);
    values.set(name, isList ? texts.join(',') : (texts.at(-1) as string));
  }
  return { values, warnings: [...warnings], label: (name) => `--${name}` };
}

/**
 * The value of a flag, even if the rest of the command line is wrong; undefined if it is not given. For what
 * has to be known to report that mistake.
 */
export function peekFlag(argv: readonly string[], name: string): string | undefined {
  const at = argv.findLastIndex((arg) => arg === `--${name}` || arg.startsWith(`--${name}=`));
  return argv[at] === `--${name}` ? argv[at + 1] : argv[at]?.slice(`--${name}=`.length);
}

function unknown(arg: string, known: Spellings): PrivatemodeError {
  const [, dashes = '', name = ''] = /^(--?)([^=]*)/s.exec(arg) ?? [];
  // Behind one dash, only a letter that stands for no flag is quoted: a key may follow it.
  const written = dashes === '--' || known.has(`--${name}`) ? `${dashes}${name}` : arg.slice(0, 2);
  const positive = name.replace(/^no-/, '');
  if (positive !== name && known.get(`--${positive}`)?.flag.type === 'boolean')
    return invalid(`unknown flag: ${written}. A boolean is switched off by --${positive}=false`);
  const listed = [...known.values()].flatMap(({ flag }) => (flag.hidden ? [] : [flag.name]));
  const meant = written.length > 2 ? nearest(name.toLowerCase().replaceAll('_', '-'), listed) : undefined;
  return invalid(
    `unknown flag: ${written}${meant === undefined ? '; --help lists all flags' : `. Did you mean --${meant}?`}`,
  );
}

/** The error for a word that is no flag, which may be a key that lost its flag. `before`: the last flag. */
function stray(
  word: string,
  known: Spellings,
  before: { readonly spelled: string; readonly text: string; readonly isSwitch: boolean } | undefined,
  commands: readonly string[] | undefined,
): PrivatemodeError {
  const { spelled, text = '', isSwitch } = before ?? {};
  if (known.has(text))
    return invalid(`flag needs an argument: ${spelled} took ${text}, the next flag, for its value`);
  const isWord = /^[a-z]{1,16}$/.test(word);
  const argument = isWord ? `unexpected argument "${word}"` : 'unexpected argument';
  if (isSwitch)
    return invalid(`${argument} after ${spelled}: a boolean is written ${spelled}=true or =false`);
  if (isWord && commands !== undefined) {
    const meant = nearest(word, commands);
    const hint = meant === word ? 'A command comes first, and then its flags' : `Did you mean ${meant}?`;
    return invalid(
      `unknown command "${word}" for "privatemode-proxy"${meant === undefined ? '; --help lists all commands' : `. ${hint}`}`,
    );
  }
  const key = known.has('--api-key') ? 'a key in a file is given as --api-key @FILE' : undefined;
  const instead = [...known.values()].find(({ flag }) => flag.bare !== undefined)?.flag.bare ?? key;
  return invalid(
    [`${argument}: every setting is a flag that starts with --`, instead].filter(Boolean).join('; '),
  );
}
