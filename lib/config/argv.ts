import mri from 'mri';
import type { PrivatemodeError } from '../errors.ts';
import { FLAGS, type Flag, type FlagAlias } from './flags.ts';
import { invalid, parseBoolean } from './values.ts';

export interface ParsedArgv {
  /** Text of every flag given, by its canonical name; the last one wins, lists are joined by commas. */
  readonly values: ReadonlyMap<string, string>;
  readonly warnings: readonly string[];
}

interface Spelling {
  readonly flag: Flag;
  readonly alias?: FlagAlias;
}

interface Given extends Spelling {
  readonly spelled: string;
  readonly text: string;
}

/** Every flag under each way to write it, dashes included: `--name` and `-n`. */
type Spellings = ReadonlyMap<string, Spelling>;

function spellingsOf(flags: readonly Flag[]): Spellings {
  const spellings = new Map<string, Spelling>();
  for (const flag of flags) {
    spellings.set(`--${flag.name}`, { flag });
    if (flag.short !== undefined) spellings.set(`-${flag.short}`, { flag });
    for (const alias of flag.aliases ?? []) spellings.set(`--${alias.name}`, { flag, alias });
  }
  return spellings;
}

/**
 * Reads a command line as Go's pflag does, which existing deployments were written for: `--x v`, `--x=v`, `-l v`, `-lv`,
 * `-l=v`; a string takes the next argument whatever it starts with; a boolean takes a value only by `=`. Subcommands pass
 * tables of their own. Throws config_invalid. Does not check values, and never quotes them: they may be keys.
 */
export function parseArgv(argv: readonly string[], flags: readonly Flag[] = FLAGS): ParsedArgv {
  const given = spellOut(argv, spellingsOf(flags));
  const warnings: string[] = [];
  const values = new Map<string, string>();
  for (const one of given) {
    const text = canonicalText(one);
    const before = one.flag.type === 'list' ? values.get(one.flag.name) : undefined;
    values.set(one.flag.name, before === undefined ? text : `${before},${text}`);
    warnings.push(...noteOn(one, text));
  }
  // mri gets the one form that it reads as pflag does; of others it would take `-1` for a flag, and `no-` for false.
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

function long(arg: string, rest: string[], spellings: Spellings): Given {
  const [name, text] = cut(arg.slice(2));
  if (name === '' || name.startsWith('-'))
    throw invalid('bad flag syntax: a flag is written --name or --name=value');
  const spelled = `--${name}`;
  const spelling = spellings.get(spelled);
  if (spelling === undefined) throw invalid(`unknown flag: ${spelled}${meantFlag(name, spellings)}`);
  return { ...spelling, spelled, text: text ?? argumentOf(spelling.flag, rest, spelled) };
}

/** The suggestion behind an unknown flag, or nothing. */
function meantFlag(name: string, spellings: Spellings): string {
  const positive = name.startsWith('no-') ? spellings.get(`--${name.slice(3)}`) : undefined;
  if (positive?.flag.type === 'boolean') return `. A boolean is switched off by --${name.slice(3)}=false`;
  const listed = [...spellings].flatMap(([spelled, { flag, alias }]) =>
    flag.hidden || alias?.deprecated || !spelled.startsWith('--') ? [] : [spelled.slice(2)],
  );
  const meant = nearest(name, listed);
  return meant === undefined ? '' : `. Did you mean --${meant}?`;
}

/** `-l v`, `-lv`, `-l=v`, and booleans run together. */
function short(arg: string, rest: string[], spellings: Spellings): Given[] {
  const given: Given[] = [];
  let letters = arg.slice(1);
  while (letters !== '') {
    const letter = letters[0] as string;
    const spelled = `-${letter}`;
    const spelling = spellings.get(spelled);
    if (spelling === undefined)
      throw invalid(`unknown shorthand flag: '${letter}' (long flags take two dashes)`);
    const { flag } = spelling;
    const after = letters.slice(1);
    const isValue = after.startsWith('=') || (flag.type !== 'boolean' && after !== '');
    const text = isValue ? after.replace(/^=/, '') : argumentOf(flag, rest, spelled);
    given.push({ ...spelling, spelled, text });
    letters = isValue ? '' : after;
  }
  return given;
}

function argumentOf(flag: Flag, rest: string[], spelled: string): string {
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

/**
 * The candidate that `word` was most likely meant to be: equal but for case, dashes and underscores, or one typing mistake
 * away (two in words of more than five letters), or the only one that begins with it. Undefined where there is none.
 */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const plain = plainly(word);
  if (plain === '') return undefined;
  const allowed = plain.length > 5 ? 2 : 1;
  const [best] = candidates
    .map((candidate) => ({ candidate, mistakes: distance(plain, plainly(candidate)) }))
    .filter(({ mistakes }) => mistakes <= allowed)
    .sort((a, b) => a.mistakes - b.mistakes);
  if (best !== undefined) return best.candidate;
  const longer =
    plain.length < 3 ? [] : candidates.filter((candidate) => plainly(candidate).startsWith(plain));
  return longer.length === 1 ? longer[0] : undefined;
}

const plainly = (word: string): string => word.toLowerCase().replace(/[-_]/g, '');

/** Letters to insert, remove, replace, or swap with their neighbour (optimal string alignment). */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return Number.POSITIVE_INFINITY;
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (last[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
          ? (before[j - 2] as number) + 1
          : replaced;
      row.push(Math.min(replaced, swapped, (last[j] as number) + 1, (row[j - 1] as number) + 1));
    }
    [before, last] = [last, row];
  }
  return last[b.length] as number;
}
