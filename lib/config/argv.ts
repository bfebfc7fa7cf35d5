import mri from 'mri';
import type { PrivatemodeError } from '../errors.ts';
import { nearest } from '../text.ts';
import { FLAGS } from './flags.ts';
import type { Flag, FlagAlias, Given } from './setting.ts';
import { invalid, parseBoolean } from './values.ts';

/** A flag and one way to write it, dashes included: `--name` or `-n`. */
interface Spelling {
  readonly spelled: string;
  readonly flag: Flag;
  readonly alias?: FlagAlias;
}

type Spellings = ReadonlyMap<string, Spelling>;
/** A flag as it was written, and the text that was written with it. */
type Written = readonly [spelling: Spelling, text: string | undefined];
type GivenFlag = Spelling & { readonly text: string };

function spellingsOf(flags: readonly Flag[]): Spellings {
  const spellings = flags.flatMap((flag): Spelling[] => [
    { spelled: `--${flag.name}`, flag },
    ...(flag.short === undefined ? [] : [{ spelled: `-${flag.short}`, flag }]),
    ...(flag.aliases ?? []).map((alias) => ({ spelled: `--${alias.name}`, flag, alias })),
  ]);
  return new Map(spellings.map((spelling) => [spelling.spelled, spelling]));
}

/**
 * Reads a command line as Go's pflag does, which existing deployments were written for: `--x v`, `--x=v`, `-l v`, `-lv`,
 * `-l=v`; a string takes the next argument whatever it starts with; a boolean takes a value only by `=`. Subcommands pass
 * tables of their own. `commands`: what a word that is no flag may have been meant for; undefined: no commands are known here. Throws config_invalid. Does not check values, and never quotes them: they may be keys.
 */
export function parseArgv(
  argv: readonly string[],
  flags: readonly Flag[] = FLAGS,
  commands?: CommandWords,
): Given {
  const values = new Map<string, string>();
  const warnings = new Set<string>();
  for (const given of spellOut(argv, spellingsOf(flags), commands)) {
    const { name, type } = given.flag;
    const text = canonicalText(given);
    values.set(name, type === 'list' && values.has(name) ? `${values.get(name)},${text}` : text);
    for (const note of noteOn(given, text)) warnings.add(note);
  }
  // mri gets the one form that it reads as pflag does; of others it would take `-1` for a flag, and `no-` for false.
  const normalised = [...values].map(([name, text]) => `--${name}=${text}`);
  const { _, ...texts } = mri<Record<string, string>>(normalised, { string: [...values.keys()] });
  return { values: new Map(Object.entries(texts)), warnings: [...warnings], label: (name) => `--${name}` };
}

/**
 * What the command line says of one flag of the proxy, whatever is wrong with the rest of it; undefined where it says nothing. For what
 * has to be known before the command line can be read. Never throws.
 */
export function peekFlag(argv: readonly string[], name: string): string | undefined {
  const spellings = spellingsOf(FLAGS);
  let found: string | undefined;
  for (let at = 0; at < argv.length && argv[at] !== '--'; ) {
    const [read, taken] = readOne(argv.slice(at, at + 2), spellings);
    for (const { flag, text } of read) if (flag.name === name) found = text;
    at += taken;
  }
  return found;
}

/** The flags of the first argument, alone or with the next one; an argument that is wrong has none. */
function readOne(
  argv: readonly string[],
  spellings: Spellings,
): readonly [flags: GivenFlag[], taken: number] {
  for (const taken of [1, 2]) {
    try {
      return [spellOut(argv.slice(0, taken), spellings), taken];
    } catch {}
  }
  return [[], 1];
}

/** Arguments → flags with their texts, in order. */
function spellOut(argv: readonly string[], spellings: Spellings, commands?: CommandWords): GivenFlag[] {
  const given: GivenFlag[] = [];
  const rest = [...argv];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === '--') {
      if (rest.length > 0) throw stray(rest[0] as string, spellings, { commands });
      break;
    }
    if (!arg.startsWith('-') || arg.length === 1)
      throw stray(arg, spellings, { commands, before: given.at(-1) });
    const written = arg.startsWith('--') ? [long(arg, spellings)] : short(arg, spellings);
    for (const [spelling, own] of written) {
      const text = own ?? (spelling.flag.type === 'boolean' ? 'true' : rest.shift());
      if (text === undefined)
        throw invalid(`flag needs an argument: ${spelling.spelled} ${spelling.flag.value ?? 'VALUE'}`);
      given.push({ ...spelling, text });
    }
  }
  return given;
}

function long(arg: string, spellings: Spellings): Written {
  const [, name = '', text] = /^--([^=]*)(?:=(.*))?$/s.exec(arg) ?? [];
  if (name === '' || name.startsWith('-'))
    throw invalid('bad flag syntax: a flag is written --name or --name=value');
  const spelling = spellings.get(`--${name}`);
  if (spelling === undefined) throw invalid(`unknown flag: --${name}${meantFlag(name, spellings)}`);
  return [spelling, text];
}

/** What stands behind the name of an unknown flag: what to write, or where to look. */
function meantFlag(name: string, spellings: Spellings): string {
  const positive = name.startsWith('no-') ? spellings.get(`--${name.slice(3)}`) : undefined;
  if (positive?.flag.type === 'boolean') return `. A boolean is switched off by --${name.slice(3)}=false`;
  const listed = [...spellings.values()].flatMap(({ spelled, flag, alias }) =>
    flag.hidden || alias?.deprecated || !spelled.startsWith('--') ? [] : [spelled.slice(2)],
  );
  const meant = nearest(name, listed);
  return meant === undefined ? '; --help lists all flags' : `. Did you mean --${meant}?`;
}

/** `-l v`, `-lv`, `-l=v`, and booleans run together. */
function short(arg: string, spellings: Spellings): Written[] {
  const [letter = '', after] = [arg[1], arg.slice(2)];
  const spelling = spellings.get(`-${letter}`);
  const [written] = arg.split('=', 1);
  // The name of a long flag behind one dash is no short flag with its value, whatever its first letter means.
  if (spellings.has(`-${written}`)) throw invalid(`unknown flag: ${written}. Did you mean -${written}?`);
  if (spelling === undefined)
    throw invalid(`unknown shorthand flag: '${letter}' (long flags take two dashes, and --help lists them)`);
  if (after === '') return [[spelling, undefined]];
  if (after.startsWith('=') || spelling.flag.type !== 'boolean') return [[spelling, after.replace(/^=/, '')]];
  return [[spelling, undefined], ...short(`-${after}`, spellings)];
}

/** Booleans become `true` or `false`, in the sense of the flag's own name. */
function canonicalText({ flag, alias, spelled, text }: GivenFlag): string {
  return flag.type === 'boolean' ? String(parseBoolean(spelled, text) !== (alias?.inverted === true)) : text;
}

/** The warning about a flag of the past. Throws config_invalid for one that is refused. */
function noteOn({ flag, alias, spelled }: GivenFlag, text: string): string[] {
  const { how, why } = flag.retired ?? {};
  if (how === 'refused' && text === 'true') throw invalid(`${spelled} is refused: ${why}`);
  if (how === 'refused') return [`${spelled} is retired and does nothing: ${why}`];
  if (how === 'ignored') return [`${spelled} is deprecated and does nothing: ${why}`];
  if (alias?.deprecated !== true) return [];
  const now = alias.inverted ? `--${flag.name} (which says the opposite)` : `--${flag.name}`;
  return [`${spelled} is deprecated; write ${now}`];
}

/** A word that is no flag. It is quoted only where it cannot be a key that lost its flag. */
function stray(
  word: string,
  spellings: Spellings,
  {
    commands,
    before,
  }: { readonly commands?: CommandWords | undefined; readonly before?: GivenFlag | undefined },
): PrivatemodeError {
  if (before !== undefined && spellings.has(before.text))
    return invalid(
      `flag needs an argument: ${before.spelled} took ${before.text}, the next flag, for its value`,
    );
  if (before?.flag.type === 'boolean' && before.text === 'true') {
    return invalid(
      `unexpected argument after ${before.spelled}: a boolean is written ${before.spelled}=true or =false`,
    );
  }
  return invalid(
    /^[a-z]{1,16}$/.test(word) && commands !== undefined
      ? `unknown command "${word}" for "privatemode-proxy"${meantCommand(word, commands)}`
      : 'unexpected argument: every setting is a flag that starts with --',
  );
}

/** By the word that somebody may write, what to write. */
export type CommandWords = ReadonlyMap<string, string>;

function meantCommand(word: string, commands: CommandWords): string {
  const meant = nearest(word, [...commands.keys()]);
  return meant === undefined ? '; --help lists all commands' : `. Did you mean ${commands.get(meant)}?`;
}
