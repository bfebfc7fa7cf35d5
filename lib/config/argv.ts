/** Reads a command line as Go's pflag does, because existing deployments were written for pflag. */
import mri from 'mri';
import type { PrivatemodeError } from '../errors.ts';
import { nearest } from '../text.ts';
import { FLAGS } from './flags.ts';
import type { Flag, FlagAlias, Given } from './setting.ts';
import { invalid, parseBoolean } from './values.ts';

/** Spelling on the command line, `--name` or `-n` → the flag of this spelling. */
type Spellings = ReadonlyMap<string, Spelling>;
type Spelling = { readonly flag: Flag; readonly alias?: FlagAlias };

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
 * starts with. A boolean flag takes a value only after `=`. `commands`: names to suggest, or undefined if no
 * command is allowed. Checks no values. Throws config_invalid, and quotes nothing that may be a key.
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
  let before: readonly [spelled?: string, text?: string] = [];
  for (let arg = rest.shift(); arg !== undefined && arg !== '--'; arg = rest.shift()) {
    const [, spelled = '', attached = ''] = /^(--[^=]+|-[^-=])(.*)$/s.exec(arg) ?? [];
    const found = known.get(spelled);
    if (found === undefined && spelled !== '') throw unknown(spelled, flags);
    if (found === undefined) throw stray(arg, known, before, commands);
    const { flag, alias } = found;
    const isBoolean = flag.type === 'boolean';
    // In `-hv`, the letters after a boolean flag are flags, too.
    const isRun = isBoolean && attached !== '' && !attached.startsWith('=');
    if (isRun) rest.unshift(`-${attached}`);
    const own = attached === '' || isRun ? undefined : attached.replace(/^=/, '');
    const text = own ?? (isBoolean ? 'true' : rest.shift());
    if (text === undefined) throw invalid(`flag needs an argument: ${spelled} ${flag.value ?? 'VALUE'}`);
    const isTrue = isBoolean && parseBoolean(spelled, text) !== (alias?.inverted ?? false);
    if (flag.retired !== undefined) warnings.add(`${spelled} is retired and does nothing: ${flag.retired}`);
    const now = alias?.inverted ? `--${flag.name} (which says the opposite)` : `--${flag.name}`;
    if (alias?.deprecated) warnings.add(`${spelled} is deprecated; write ${now}`);
    lines.push(`--${flag.name}=${isBoolean ? isTrue : text}`);
    before = [spelled, text];
  }
  if (rest.length > 0) throw invalid('unexpected argument behind --: every setting is a flag in front of it');

  const names = flags.map(({ name }) => name);
  const { _, ...read } = mri<Record<string, string | string[]>>(lines, { string: names });
  const values = new Map<string, string>();
  for (const [name, given] of Object.entries(read)) {
    const texts = [given].flat();
    const isList = known.get(`--${name}`)?.flag.type === 'list';
    if (!isList && new Set(texts).size > 1)
      warnings.add(`--${name} is given more than once, and only the last counts`);
    values.set(name, isList ? texts.join(',') : (texts.at(-1) as string));
  }
  return { values, warnings: [...warnings], label: (name) => `--${name}` };
}

/** `spelled` is the flag without its value. A short flag is cut after its letter: a key may follow. */
function unknown(spelled: string, flags: readonly Flag[]): PrivatemodeError {
  const listed = flags.flatMap(({ name, hidden }) => (hidden ? [] : [`--${name}`]));
  const meant = nearest(spelled.toLowerCase().replaceAll('_', '-'), listed);
  const hint = meant === undefined ? '; --help lists all flags' : `. Did you mean ${meant}?`;
  return invalid(`unknown flag: ${spelled}${hint}`);
}

/** The error for a word that is no flag: perhaps a key that lost its flag. `spelled` is the last flag. */
function stray(
  word: string,
  known: Spellings,
  [spelled = '', text = '']: readonly [spelled?: string, text?: string],
  commands: readonly string[] | undefined,
): PrivatemodeError {
  if (known.has(text))
    return invalid(`flag needs an argument: ${spelled} took ${text}, the next flag, for its value`);
  if (/^(?:true|false)$/.test(word))
    return invalid(`unexpected argument "${word}" after ${spelled}: a boolean is written --flag=${word}`);
  const quoted = /^[a-z]{1,16}$/.test(word) ? ` "${word}"` : '';
  if (quoted !== '' && commands !== undefined) {
    const meant = nearest(word, commands);
    const all = '; --help lists all commands';
    const hint = meant === word ? '. A command comes first, and then its flags' : `. Did you mean ${meant}?`;
    return invalid(`unknown command${quoted} for "privatemode-proxy"${meant === undefined ? all : hint}`);
  }
  const key = known.has('--api-key') ? 'a key in a file is given as --api-key @FILE' : undefined;
  const { bare = key } = [...known.values()].find(({ flag }) => flag.bare !== undefined)?.flag ?? {};
  const end = bare === undefined ? '' : `; ${bare}`;
  return invalid(`unexpected argument${quoted}: every setting is a flag that starts with --${end}`);
}
