/**
 * Reads a command line: which flags it gives, with which texts. Mistakes in it become errors that say what to
 * write.
 */
import mri from 'mri';
import type { PrivatemodeError } from '../errors.ts';
import { nearest, printable } from '../text.ts';
import { FLAGS } from './flags.ts';
import type { Flag, FlagAlias, Given } from './setting.ts';
import { invalid, parseBoolean } from './values.ts';

/** What to write, for people who look for a settings file: there is none. */
const NO_FILE =
  '--api-key @FILE and the other settings as flags, or as variables PRIVATEMODE_PROXY_…: there is no file of settings';

/** Single-letter flags of other programs, and the flag to write here. */
const LETTERS: Readonly<Record<string, string>> = {
  p: '--port',
  k: '--api-key',
  c: '--clients; there is no file of settings',
  m: '--model-alias',
};

/** One way to write a flag, dashes included: `--name` or `-n`. */
interface Spelling {
  readonly spelled: string;
  readonly flag: Flag;
  readonly alias?: FlagAlias;
}

type Spellings = ReadonlyMap<string, Spelling>;
/** One flag of the command line: the spelling used, and the value written in the same argument, if any. */
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
 * Reads a command line as Go's pflag does, because existing deployments were written for it: `--x v`,
 * `--x=v`, `-l v`, `-lv`, `-l=v`. A flag with a value takes the next argument, whatever that starts with; a
 * boolean takes a value only after `=`. `flags`: the table to read by; subcommands pass tables of their own.
 * `commands`: commands to suggest for a word that is no flag; undefined if no commands are known here. Does
 * not check values. Throws config_invalid; no message quotes a value that may be a key.
 */
export function parseArgv(
  argv: readonly string[],
  flags: readonly Flag[] = FLAGS,
  commands?: CommandWords,
): Given {
  const values = new Map<string, string>();
  const warnings = new Set<string>();
  const repeated = new Set<Flag>();
  for (const given of spellOut(argv, spellingsOf(flags), commands)) {
    const { name, type } = given.flag;
    const text = canonicalText(given);
    if (type !== 'list' && (values.get(name) ?? text) !== text) repeated.add(given.flag);
    values.set(name, type === 'list' && values.has(name) ? `${values.get(name)},${text}` : text);
    for (const note of noteOn(given, text)) warnings.add(note);
  }
  for (const { name, secret } of repeated) {
    const text = values.get(name) ?? '';
    // A URL may hold a password.
    const used = secret || text.includes('@') ? 'the last one' : printable(text, 100);
    warnings.add(`--${name} is given more than once, and only the last counts: ${used} is used`);
  }
  // mri gets the one form that it reads as pflag does; of others it would take `-1` for a flag, and `no-` for
  // false.
  const normalised = [...values].map(([name, text]) => `--${name}=${text}`);
  const { _, ...texts } = mri<Record<string, string>>(normalised, { string: [...values.keys()] });
  return { values: new Map(Object.entries(texts)), warnings: [...warnings], label: (name) => `--${name}` };
}

/**
 * The value of one flag of the proxy, even if the rest of the command line is wrong; undefined if the flag is
 * not given. For settings that are needed before the command line can be read. Never throws.
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

/**
 * Reads the first argument, alone or together with the next one. An argument that is wrong gives no flags.
 * `taken`: how many arguments were read.
 */
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

/** Turns arguments into flags with their texts, in order. */
function spellOut(argv: readonly string[], spellings: Spellings, commands?: CommandWords): GivenFlag[] {
  const given: GivenFlag[] = [];
  const rest = [...argv];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === '--') {
      const [flag = ''] = rest[0]?.split('=') ?? [];
      if (spellings.has(flag))
        throw invalid(`${flag} stands behind --, where no flag counts: leave out the -- in front of it`);
      if (rest.length > 0) throw stray(rest[0] as string, spellings, { commands });
      break;
    }
    if (DASHED.test(arg)) throw dashed(arg, spellings);
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

/**
 * Matches a word that begins with a long dash in place of `--`: web pages and word processors replace two
 * hyphens by one dash.
 */
export const DASHED = /^-?[\u2010-\u2015\u2212]+-*(?<name>[\w-]*)/;

function dashed(arg: string, spellings: Spellings): PrivatemodeError {
  const name = DASHED.exec(arg)?.groups?.['name'] ?? '';
  // Only the name of a flag is quoted: anything else may be a key.
  const [typed, meant] = spellings.has(`--${name}`) ? [`–${name}`, `--${name}`] : ['an argument', '--NAME'];
  return invalid(
    `${typed} begins with a long dash, which web pages make of two hyphens: write ${meant} with two hyphens`,
  );
}

function long(arg: string, spellings: Spellings): Written {
  const [, name = '', text] = /^--([^=]*)(?:=(.*))?$/s.exec(arg) ?? [];
  if (name === '' || name.startsWith('-'))
    throw invalid('bad flag syntax: a flag is written --name or --name=value');
  const spelling = spellings.get(`--${name}`);
  if (spelling === undefined) throw invalid(`unknown flag: --${name}${meantFlag(name, spellings)}`);
  return [spelling, text];
}

/** End of the message about an unknown flag: what to write instead, or where to look. */
function meantFlag(name: string, spellings: Spellings): string {
  const positive = name.startsWith('no-') ? spellings.get(`--${name.slice(3)}`) : undefined;
  if (positive?.flag.type === 'boolean') return `. A boolean is switched off by --${name.slice(3)}=false`;
  const listed = [...spellings.values()].flatMap(({ spelled, flag, alias }) =>
    flag.hidden || alias?.deprecated || !spelled.startsWith('--') ? [] : [spelled.slice(2)],
  );
  const written = Object.hasOwn(ELSEWHERE, name) ? ELSEWHERE[name] : undefined;
  if (written !== undefined && spellings.has(/^--[a-z-]+/.exec(written)?.[0] ?? ''))
    return `. Write ${written}`;
  const meant = nearest(name, listed) ?? nearest(name.toLowerCase().replaceAll('_', '-'), listed);
  return meant === undefined ? '; --help lists all flags' : `. Did you mean --${meant}?`;
}

/** Names that other programs give to a setting, and what to write here instead. */
const ELSEWHERE: Readonly<Record<string, string>> = {
  config: NO_FILE,
  'config-file': NO_FILE,
  file: NO_FILE,
  debug: '--log-level debug',
  loglevel: '--log-level debug',
  quiet: '--log-level error',
  silent: '--log-level error',
  json: '--log-format json',
  host: '--listen-address 127.0.0.1',
  bind: '--listen-address 127.0.0.1',
  listen: '--listen-address 127.0.0.1',
  address: '--listen-address 127.0.0.1',
  key: '--api-key @FILE',
  token: '--api-key @FILE',
  'api-key-file': '--api-key @FILE',
  url: '--api-endpoint HOST:PORT',
  'base-url': '--api-endpoint HOST:PORT',
  upstream: '--api-endpoint HOST:PORT',
  endpoint: '--api-endpoint HOST:PORT',
  cert: '--tls-cert-path FILE',
  'tls-cert': '--tls-cert-path FILE',
  'tls-key': '--tls-key-path FILE',
  manifest: '--manifest-path FILE',
  model: '--model-alias NAME=MODEL',
  alias: '--model-alias NAME=MODEL',
  cors: '--cors-allowed-origins ORIGIN',
  metrics: '--metrics-address HOST:PORT',
  admin: '--admin-address HOST:PORT',
  'admin-port': '--admin-address HOST:PORT',
  timeout: '--first-byte-timeout 10m',
};

/** Reads an argument with one dash: `-l v`, `-lv`, `-l=v`, or several boolean letters in one argument. */
function short(arg: string, spellings: Spellings): Written[] {
  const [letter = '', after] = [arg[1], arg.slice(2)];
  const spelling = spellings.get(`-${letter}`);
  const [written] = arg.split('=', 1);
  // The name of a long flag behind one dash is no short flag with its value, whatever its first letter means.
  if (spellings.has(`-${written}`)) throw invalid(`unknown flag: ${written}. Did you mean -${written}?`);
  if (spelling === undefined) {
    const long = Object.hasOwn(LETTERS, letter) ? LETTERS[letter] : undefined;
    const known = spellings.has('--api-key') && long !== undefined;
    throw invalid(
      `unknown shorthand flag: '${letter}' ${known ? `(write ${long})` : '(long flags take two dashes, and --help lists them)'}`,
    );
  }
  if (after === '') return [[spelling, undefined]];
  if (after.startsWith('=') || spelling.flag.type !== 'boolean') return [[spelling, after.replace(/^=/, '')]];
  return [[spelling, undefined], ...short(`-${after}`, spellings)];
}

/**
 * The text of a flag as other code expects it. A boolean becomes `true` or `false`, with the meaning of the
 * flag's own name: an inverted alias is turned around.
 */
function canonicalText({ flag, alias, spelled, text }: GivenFlag): string {
  return flag.type === 'boolean' ? String(parseBoolean(spelled, text) !== (alias?.inverted === true)) : text;
}

/**
 * Warnings about deprecated and retired flags. Throws config_invalid for a refused flag that is switched on.
 */
function noteOn({ flag, alias, spelled }: GivenFlag, text: string): string[] {
  const { how, why } = flag.retired ?? {};
  if (how === 'refused' && text === 'true') throw invalid(`${spelled} is refused: ${why}`);
  if (how === 'refused') return [`${spelled} is retired and does nothing: ${why}`];
  if (how === 'ignored') return [`${spelled} is deprecated and does nothing: ${why}`];
  if (alias?.deprecated !== true) return [];
  const now = alias.inverted ? `--${flag.name} (which says the opposite)` : `--${flag.name}`;
  return [`${spelled} is deprecated; write ${now}`];
}

/**
 * The error for a word that is no flag. The message quotes the word only if it cannot be a key that lost its
 * flag. If a row of the table has `bare`, that text ends the message.
 */
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
  const quoted =
    !spellings.has('--api-key') || NO_KEY.test(word) ? ` ${JSON.stringify(printable(word, 100))}` : '';
  const rule = before === undefined ? undefined : ruleBehind(before);
  if (rule === undefined && /^[a-z]{1,16}$/.test(word) && commands !== undefined)
    return invalid(`unknown command "${word}" for "privatemode-proxy"${meantCommand(word, commands)}`);
  const flags = [...spellings.values()].map(({ flag }) => flag);
  if (rule === undefined && flags.every(({ name }) => name === 'help'))
    return invalid(`unexpected argument${quoted}: leave it out; nothing follows here`);
  const key =
    spellings.has('--api-key') && rule === undefined
      ? 'a key in a file is given as --api-key @FILE'
      : undefined;
  const port = /^\d{1,5}$/.test(word) && spellings.has('--port') ? `a port is given as --port ${word}` : key;
  const meant = flags.find(({ bare }) => bare !== undefined)?.bare ?? port;
  const instead = meant === undefined || before?.flag.type === 'list' ? '' : `; ${meant}`;
  return invalid(
    `unexpected argument${quoted}${rule ?? ': every setting is a flag that starts with --'}${instead}`,
  );
}

/**
 * Matches words that cannot be a key: a plain lower-case word, a port, an address with a port and perhaps a
 * plain word as its path, or a path that begins with `./` or `../`.
 */
const NO_KEY =
  /^(?:[a-z]{1,16}|\d{1,5}|(?:localhost|\d+(?:\.\d+){3}|\[[\da-f:]+\]|https?:\/\/[\w.-]+):\d{1,5}(?:\/[a-z]{0,16})?|\.{1,2}\/.*)$/;

/**
 * Says what is wrong with a word right after a flag that took no value from it; undefined if there is nothing
 * special to say.
 */
function ruleBehind({ flag, spelled, text }: GivenFlag): string | undefined {
  if (flag.type === 'list')
    return `: several values of ${spelled} are joined by commas, as in ${spelled} A,B; put quotes around *`;
  if (flag.type !== 'boolean' || text !== 'true') return undefined;
  return flag.commandLineOnly || flag.name === 'help'
    ? ` after ${spelled}, which takes none: leave it out`
    : ` after ${spelled}: a boolean is written ${spelled}=true or =false`;
}

/** Maps a word that people may write to the command to suggest. */
export type CommandWords = ReadonlyMap<string, string>;

/** Words with which other programs start. */
const STARTS: readonly string[] = ['start', 'serve', 'up'];

function meantCommand(word: string, commands: CommandWords): string {
  if (STARTS.includes(word)) return `. The proxy starts without a command: leave out "${word}"`;
  if (commands.get(word) === word) return `. A command comes first: ${word} and then its flags`;
  const meant = nearest(word, [...commands.keys()]);
  return meant === undefined ? '; --help lists all commands' : `. Did you mean ${commands.get(meant)}?`;
}
