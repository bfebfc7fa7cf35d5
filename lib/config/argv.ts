import mri from 'mri';
import { PrivatemodeError } from '../errors.ts';
import { FLAGS, type Flag, type FlagAlias } from './flags.ts';
import { nearest } from './near-match.ts';
import { parseBoolean } from './values.ts';

/** A row of a flag table, as far as the command line is concerned. */
export type FlagRow = Omit<Flag, 'group'>;

export interface ParsedArgv {
  /** Text of every flag given, by its canonical name; the last one wins, lists are joined by commas. */
  readonly values: ReadonlyMap<string, string>;
  readonly warnings: readonly string[];
}

interface Spelling {
  readonly flag: FlagRow;
  readonly alias: FlagAlias | undefined;
}

interface Given extends Spelling {
  readonly spelled: string;
  readonly text: string;
}

interface Spellings {
  readonly byName: ReadonlyMap<string, Spelling>;
  readonly byShort: ReadonlyMap<string, FlagRow>;
}

function spellingsOf(flags: readonly FlagRow[]): Spellings {
  return {
    byName: new Map(
      flags.flatMap((flag) => [
        [flag.name, { flag, alias: undefined }],
        ...(flag.aliases ?? []).map((alias): [string, Spelling] => [alias.name, { flag, alias }]),
      ]),
    ),
    byShort: new Map(flags.flatMap((flag) => (flag.short === undefined ? [] : [[flag.short, flag]]))),
  };
}

/**
 * The command line as Go's pflag reads it, which is what existing deployments were written for (inference.md 12):
 * `--x v`, `--x=v`, `-l v`, `-lv`, `-l=v`; a string takes the next argument whatever it starts with; a boolean takes a
 * value only by `=`. Throws config_invalid. Values are not judged here, and never quoted: they may be keys.
 * Subcommands with flags of their own pass a longer table.
 */
export function parseArgv(argv: readonly string[], flags: readonly FlagRow[] = FLAGS): ParsedArgv {
  const given = spellOut(argv, spellingsOf(flags));
  const warnings: string[] = [];
  const values = new Map<string, string>();
  for (const one of given) {
    const text = canonicalText(one);
    const before = one.flag.type === 'list' ? values.get(one.flag.name) : undefined;
    values.set(one.flag.name, before === undefined ? text : `${before},${text}`);
    warnings.push(...noteOn(one, text));
  }
  // With every argument in the one form `--name=text`, mri has nothing left to guess (trap 17).
  const normalised = [...values].map(([name, text]) => `--${name}=${text}`);
  const parsed = mri<Record<string, string>>(normalised, { string: [...values.keys()] });
  return {
    values: new Map([...values.keys()].map((name) => [name, parsed[name] as string])),
    warnings: [...new Set(warnings)],
  };
}

/** Arguments → flags with their texts, in order. */
function spellOut(argv: readonly string[], spellings: Spellings): Given[] {
  const given: Given[] = [];
  const rest = [...argv];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === '--') {
      if (rest.length > 0) throw stray(rest[0] as string);
    } else if (arg.startsWith('--')) given.push(long(arg, rest, spellings));
    else if (arg.startsWith('-') && arg.length > 1) given.push(...short(arg, rest, spellings));
    else throw stray(arg, given.at(-1));
  }
  return given;
}

function long(arg: string, rest: string[], { byName }: Spellings): Given {
  const [name, text] = cut(arg.slice(2));
  if (name === '' || name.startsWith('-'))
    throw invalid('bad flag syntax: a flag is written --name or --name=value');
  const spelling = byName.get(name);
  if (spelling === undefined) throw invalid(`unknown flag: --${name}${meantFlag(name, byName)}`);
  return { ...spelling, spelled: `--${name}`, text: text ?? argumentOf(spelling.flag, rest, `--${name}`) };
}

/** The suggestion behind an unknown flag, or nothing. */
function meantFlag(name: string, byName: Spellings['byName']): string {
  const positive = name.startsWith('no-') ? byName.get(name.slice(3)) : undefined;
  if (positive?.flag.type === 'boolean') return `. A boolean is switched off by --${name.slice(3)}=false`;
  const listed = [...byName].filter(([, { flag, alias }]) => !flag.hidden && alias?.deprecated !== true);
  const meant = nearest(
    name,
    listed.map(([known]) => known),
  );
  return meant === undefined ? '' : `. Did you mean --${meant}?`;
}

/** `-l v`, `-lv`, `-l=v`, and booleans run together. */
function short(arg: string, rest: string[], { byShort }: Spellings): Given[] {
  const given: Given[] = [];
  let letters = arg.slice(1);
  while (letters !== '') {
    const letter = letters[0] as string;
    const flag = byShort.get(letter);
    if (flag === undefined) throw invalid(`unknown shorthand flag: '${letter}' (long flags take two dashes)`);
    const after = letters.slice(1);
    const spelled = `-${letter}`;
    if (after.startsWith('=')) {
      given.push({ flag, alias: undefined, spelled, text: after.slice(1) });
      letters = '';
    } else if (flag.type !== 'boolean' && after !== '') {
      given.push({ flag, alias: undefined, spelled, text: after });
      letters = '';
    } else {
      given.push({ flag, alias: undefined, spelled, text: argumentOf(flag, rest, spelled) });
      letters = after;
    }
  }
  return given;
}

function argumentOf(flag: FlagRow, rest: string[], spelled: string): string {
  if (flag.type === 'boolean') return 'true';
  const text = rest.shift();
  if (text === undefined) throw invalid(`flag needs an argument: ${spelled}`);
  return text;
}

/** Booleans become `true` or `false`, in the sense of the flag's own name. */
function canonicalText({ flag, alias, spelled, text }: Given): string {
  return flag.type === 'boolean' ? String(parseBoolean(spelled, text) !== (alias?.inverted === true)) : text;
}

function noteOn({ flag, alias, spelled }: Given, text: string): string[] {
  if (flag.retired?.how === 'refused') {
    if (text === 'true') throw invalid(`${spelled} is refused: ${flag.retired.why}`);
    return [`${spelled} is retired and does nothing: ${flag.retired.why}`];
  }
  if (flag.retired !== undefined) return [`${spelled} is deprecated and does nothing: ${flag.retired.why}`];
  if (alias?.deprecated !== true) return [];
  const now = alias.inverted ? `--${flag.name} (which says the opposite)` : `--${flag.name}`;
  return [`${spelled} is deprecated; write ${now}`];
}

/** A word that is no flag. It is quoted only where it cannot be a key that lost its flag. */
function stray(word: string, before?: Given): PrivatemodeError {
  if (before?.flag.type === 'boolean' && before.text === 'true') {
    return invalid(
      `unexpected argument after ${before.spelled}: a boolean is written ${before.spelled}=true or =false`,
    );
  }
  return invalid(
    /^[a-z]{1,16}$/.test(word)
      ? `unknown command "${word}" for "privatemode-proxy"${meantCommand(word)}`
      : 'unexpected argument: every setting is a flag that starts with --',
  );
}

const COMMANDS: readonly string[] = ['verify', 'healthcheck', 'help', 'version'];
/** What other programs call what this one does without a command. */
const STARTS: readonly string[] = ['serve', 'server', 'start', 'run', 'up', 'proxy', 'listen'];

function meantCommand(word: string): string {
  if (STARTS.includes(word)) return '. The proxy starts without a command: privatemode-proxy [flags]';
  const meant = nearest(word, COMMANDS);
  return meant === undefined ? '' : `. Did you mean ${meant}?`;
}

function cut(text: string): [name: string, value: string | undefined] {
  const at = text.indexOf('=');
  return at === -1 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

const invalid = (words: string): PrivatemodeError => new PrivatemodeError('config_invalid', words);
