/**
 * `privatemode-proxy clients new NAME…`, `list` and `revoke NAME`: changes and shows the file of --clients.
 */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { readFile as read, readlink, realpath } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { CLIENT_NAME, type ClientEntry, parseClientsFile, TOKEN_PREFIX } from '../access/clients-file.ts';
import { type Clock, pause } from '../clock.ts';
import { readApiKey } from '../config/api-key.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { setting, text, valuesOf } from '../config/setting.ts';
import { asWritten, invalid } from '../config/values.ts';
import { copyBeside, overwrite, publish, syncDirectory, withLock } from '../files/durable-file.ts';
import { readNamed } from '../files/path-refusal.ts';
import type { StatusReport } from '../observe/status-report.ts';
import { nearest, plural, printable } from '../text.ts';
import { type Address, askFor } from './ask-proxy.ts';
import { type Command, HELP, type Invocation } from './command.ts';
import { ADMIN_ADDRESS } from './status.ts';

const TOKEN_BYTES = 32;
/** Permissions of a new file. */
const MODE = 0o600;

/** A fresh token of 256 random bits, and its SHA-256 in lower-case hex. */
export function newToken(): { readonly token: string; readonly digest: string } {
  const token = `${TOKEN_PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`;
  return { token, digest: createHash('sha256').update(token).digest('hex') };
}

const SETTINGS = FLAGS.filter((row) => row.name === 'clients');

const API_KEY_FILE = setting('api-key-file', text('PATH', asWritten), {
  help: 'For new: a file with the key of the service that the clients use. PATH is relative to the directory of the clients file, which gets it as apiKey.',
});

const BARE =
  'give NAME before all flags (new takes several, revoke one, list none), and the file as --clients FILE';

export const CLIENTS: Command = {
  flags: [...SETTINGS.map((row) => ({ ...row, bare: BARE })), API_KEY_FILE, ADMIN_ADDRESS, HELP],
  takesEnvironment: true,
  words: [['new', 'NAME…'], ['list'], ['revoke', 'NAME']],
  otherFlags: () =>
    'limits, models and expiry of a client go into the file, beside its tokens (docs/clients-file.md)',
  help: renderHelp,
  run: runClients,
};

/**
 * Returns the exit code. stdout gets only the tokens, one per line in the order of the names, or the list;
 * stderr gets everything for people. Throws config_invalid, also if the proxy at --admin-address does not use
 * the new list.
 */
async function runClients({ given, words: [word, ...names], io }: Invocation): Promise<number> {
  const { stdout, stderr, clock } = io;
  const { clients: path } = valuesOf(SETTINGS, given);
  const { adminAddress, apiKeyFile } = valuesOf([ADMIN_ADDRESS, API_KEY_FILE], given);
  checkNames(names);
  if (apiKeyFile !== undefined && word !== 'new')
    throw invalid('--api-key-file goes with clients new: the file has the apiKey of each client');
  if (word === 'list') {
    const { entries, file } = readFile(needed(word, path));
    stdout.write(listed(entries, clock.now()));
    stderr.write(aboutKeys(file, path as string));
    return 0;
  }
  const fresh = word === 'new' ? names.map((name) => ({ name, ...newToken() })) : [];
  if (path === undefined && word === 'new') {
    if (apiKeyFile !== undefined)
      throw invalid('--api-key-file needs the --clients FILE to whose directory its path is relative');
    for (const each of fresh) show(each, io);
    stderr.write(entriesFor(fresh));
    return 0;
  }
  const file = needed(word, path);
  if (word === 'revoke') readFile(file); // must exist; "new" makes the file
  const { said, sha256, written, entries } = await change(file, (before) =>
    word === 'new'
      ? withTokens(before, fresh, { path: file, apiKeyFile })
      : without(before, names[0] as string, file),
  );
  for (const each of fresh) show(each, io);
  stderr.write(aboutExpiry(fresh, entries, clock.now()));
  const done = said(file);
  const people = word === 'new' ? stderr : stdout;
  if (word === 'revoke') stderr.write(aboutKeys(written, file));
  if (adminAddress === undefined) {
    people.write(`${done} ${WHAT_TO_LOOK_FOR}\n`);
  } else {
    people.write(`${done}\n`);
    const isIn = ({ name, digest }: Fresh, { clients }: Written): boolean =>
      clients.some((client) => client.name === name && client.tokens.includes(digest));
    const holds = (now: Written): boolean =>
      word === 'new'
        ? fresh.every((each) => isIn(each, now))
        : now.clients.every(({ name }) => name !== names[0]);
    await untilInForce(adminAddress, clock, sha256, () => digestIf(file, holds));
    people.write('The running proxy uses the new list now; running requests continue.\n');
  }
  return 0;
}

function checkNames(names: readonly string[]): void {
  const wrong = names.find((name) => !CLIENT_NAME.test(name));
  if (wrong !== undefined)
    throw invalid(
      `NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit, not ${JSON.stringify(printable(wrong, 100))}` +
        (wrong.includes(',') ? '; several names are separated by blanks' : ''),
    );
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw invalid(`the name "${twice}" is given twice: give each name once`);
}

interface Fresh {
  readonly name: string;
  readonly token: string;
  readonly digest: string;
}

/** Prints a token: a terminal shows both lines, and a script reads only the second. */
function show({ name, token }: Fresh, { stdout, stderr }: Invocation['io']): void {
  stderr.write(`The token of ${name}, which is shown this once and stored nowhere:\n`);
  stdout.write(`${token}\n`);
}

const WHAT_TO_LOOK_FOR =
  'It is in force once the log of the proxy says "The clients file, or a key in it, was read again"; with --admin-address this command asks the proxy.';

function needed(word: string | undefined, path: string | undefined): string {
  if (path === undefined) throw invalid(`clients ${word} needs the --clients FILE of the proxy`);
  return path;
}

function entriesFor(fresh: readonly Fresh[]): string {
  const what =
    'For "clients" in the file of --clients (a second token of a client: only the digest, beside the first):';
  const entries = fresh.map(({ name, digest }) => `  ${JSON.stringify({ name, tokens: [digest] })}\n`);
  return `${what}\n${entries.join('')}`;
}

/** The new content of the file, and the message about the change. */
interface Change {
  readonly file: Written;
  readonly said: (path: string) => string;
}

/** Throws config_invalid for a change after which a gateway without --api-key would refuse the file. */
function withTokens(
  file: Written,
  fresh: readonly Fresh[],
  { path, apiKeyFile }: { readonly path: string; readonly apiKeyFile: string | undefined },
): Change {
  const key = apiKeyFile === undefined ? {} : { apiKey: `@${apiKeyFile.replace(/^@/, '')}` };
  const changed = fresh.reduce<Change>(
    (before, { name, digest }) => {
      const { file: next, said } = withToken(before.file, { name, digest, key });
      return { file: next, said: (at) => `${before.said(at)} ${said(at)}`.trim() };
    },
    { file, said: () => '' },
  );
  // The value is not quoted: it may be the key itself, by mistake.
  if (key.apiKey !== undefined) {
    const keyPath = resolve(dirname(path), key.apiKey.slice(1));
    checkKeyFile(keyPath, path);
  }
  if (file.clients.length > 0 && file.clients.every(hasKey) && !changed.file.clients.every(hasKey))
    throw invalid(
      `every client in ${path} has an apiKey, and a gateway without --api-key refuses a file in which a client has none: add ` +
        '--api-key-file PATH, a file with the key that the new clients use, relative to the directory of the clients file. ' +
        'If the gateway has --api-key, "clients new NAME" without --clients prints an entry to write into the file',
    );
  return changed;
}

/**
 * Throws config_invalid if the gateway could not use `keyPath` as the file of a key. Accepts a file that only
 * the gateway's user may read. `path`: the clients file.
 */
function checkKeyFile(keyPath: string, path: string): void {
  try {
    readApiKey({ kind: 'file', path: keyPath }, undefined, '--api-key-file');
  } catch (thrown) {
    const { code = '' } = ((thrown as Error).cause ?? {}) as NodeJS.ErrnoException;
    if (FORBIDDEN.includes(code)) return;
    if (code !== 'ENOENT') throw thrown;
    throw invalid(
      `there is no file of the name that --api-key-file gives: write the path of a file, relative to the directory of ${path}`,
    );
  }
}

const FORBIDDEN: readonly string[] = ['EACCES', 'EPERM'];

const hasKey = (client: Written['clients'][number]): boolean => client.apiKey !== undefined;

/** A warning about a file that not every gateway accepts; empty if there is none. */
const aboutKeys = ({ clients }: Written, path: string): string =>
  clients.some(hasKey) && !clients.every(hasKey)
    ? `Warning: some clients in ${path} have an apiKey and some have none: a gateway without --api-key refuses this file, and goes on with the list it had.\n`
    : '';

/** Warnings about clients whose new token is refused from the start; empty if there are none. */
function aboutExpiry(fresh: readonly Fresh[], entries: readonly ClientEntry[], now: number): string {
  const expired = entries.filter(
    ({ name, expires = Infinity }) => expires <= now && fresh.some((each) => each.name === name),
  );
  const warnings = expired.map(
    ({ name, expires }) =>
      `Warning: ${name} expired at ${new Date(expires as number).toISOString()}, so its tokens are refused: change "expires" in the file.\n`,
  );
  return warnings.join('');
}

function withToken(
  file: Written,
  { name, digest, key }: Omit<Fresh, 'token'> & { readonly key: { readonly apiKey?: string } },
): Change {
  const known = file.clients.find((client) => client.name === name);
  if (known === undefined) {
    const clients = [...file.clients, { name, tokens: [digest], ...key }];
    return { file: { ...file, clients }, said: (path) => `${name} is in ${path} now.` };
  }
  const added = { ...known, tokens: [...known.tokens, digest], ...key };
  const clients = file.clients.with(file.clients.indexOf(known), added);
  return {
    file: { ...file, clients },
    said: (path) => `${name} has ${plural(added.tokens.length, 'token')} in ${path} now.`,
  };
}

/** Characters of a name that a message may show. A token has more. */
const LONGEST_SHOWN = 24;

function without(file: Written, name: string, path: string): Change {
  const clients = file.clients.filter((client) => client.name !== name);
  if (clients.length === file.clients.length) {
    const isNear = (known: string) => nearest(name.toLowerCase(), [known.toLowerCase()]) !== undefined;
    const meant = clients.find((client) => isNear(client.name))?.name;
    // A word that is like no known name may be a token, which is longer.
    const which = meant !== undefined || name.length <= LONGEST_SHOWN ? name : 'of that name';
    throw invalid(
      `${path} has no client ${which}${meant === undefined ? '; "clients list" shows all names' : `. Did you mean ${meant}?`}`,
    );
  }
  return { file: { ...file, clients }, said: () => `${name} is no longer in ${path}.` };
}

/**
 * Resolves once every process of the proxy uses the file with this SHA-256, or with one that `later` gives.
 * `later` is called repeatedly: it gives the SHA-256 of a file that another command has written meanwhile, if
 * that file still has the change of this command. Throws config_invalid if a process uses neither in time, or
 * if no proxy responds.
 */
async function untilInForce(
  address: Address,
  clock: Clock,
  sha256: string,
  later: () => string | undefined,
): Promise<void> {
  const good = new Set([sha256]);
  const written = 'the file is written, but it is not known to be in force';
  const { clientsInForceWait, clientsInForceLook } = clock.times;
  const end = clock.monotonic() + clientsInForceWait;
  for (; ; await pause(clock, clientsInForceLook, undefined, 'waiting')) {
    let report: StatusReport;
    try {
      report = (await askFor(address, '/status', clock)) as StatusReport;
    } catch (thrown) {
      throw invalid(`${written}: ${(thrown as Error).message}`);
    }
    const { clientsFile } = report;
    if (typeof clientsFile !== 'string')
      throw invalid(`${written}: the proxy that answered has no --clients`);
    if (good.has(clientsFile)) return;
    good.add(later() ?? sha256);
    if (clock.monotonic() < end) continue;
    throw invalid(
      `${written}: the running proxy still uses another list after ${clientsInForceWait / 1000} s. Look at its log: it says why it cannot use the file. ` +
        'If it says nothing, it reads another file (a copy, or a mount of the one that was replaced): restart it',
    );
  }
}

/** SHA-256 of the file if it can be used now and `holds`; else undefined. */
function digestIf(path: string, holds: (file: Written) => boolean): string | undefined {
  try {
    const { bytes, file } = readFile(path);
    return holds(file) ? createHash('sha256').update(bytes).digest('hex') : undefined;
  } catch {
    return undefined; // another command is writing it
  }
}

/** The list for a person: one line per client. `now`: ms since 1970. */
function listed(entries: readonly ClientEntry[], now: number): string {
  const rows = entries.map(({ name, tokens, expires, limits, models, endpoints }) => {
    const { requestsPerMinute, tokensPerDay, maxConcurrent } = limits;
    const rules = [
      expires !== undefined && `${expires <= now ? 'EXPIRED' : 'expires'} ${new Date(expires).toISOString()}`,
      requestsPerMinute !== undefined && `${requestsPerMinute} requests per minute`,
      tokensPerDay !== undefined && `${tokensPerDay} tokens per day`,
      maxConcurrent !== undefined && `${maxConcurrent} at a time`,
      models !== undefined && `models ${models.join(' ')}`,
      endpoints !== undefined && `endpoints ${endpoints.join(' ')}`,
    ];
    return [name, plural(tokens.length, 'token'), rules.filter(Boolean).join(', ')] as const;
  });
  const [first, second] = [0, 1].map((i) => Math.max(...rows.map((row) => (row[i] as string).length)) + 2);
  const lines = rows.map(([name, tokens, rules]) =>
    (name.padEnd(first ?? 0) + tokens.padEnd(second ?? 0) + rules).trimEnd(),
  );
  return `${[...lines, plural(rows.length, 'client')].join('\n')}\n`;
}

/** The content of the file. Members that this command does not know stay in it. */
interface Written {
  readonly clients: readonly {
    readonly name: string;
    readonly tokens: readonly string[];
    readonly apiKey?: string;
  }[];
}

/** Reads the file. Throws config_invalid, also if the proxy would refuse the file. */
function readFile(path: string): {
  readonly bytes: Buffer;
  readonly file: Written;
  readonly entries: readonly ClientEntry[];
} {
  const bytes = Buffer.from(readNamed(`the file of --clients, ${path}`, path));
  if (bytes.length === 0)
    throw invalid(
      `${path} was not written to its end. If no other command is writing it, the whole text is in ${copyBeside(realpathSync(path))}: copy it back with cat`,
    );
  // Whether each client needs a key is decided by --api-key of the proxy, which this command does not know.
  const entries = parseClientsFile(bytes, { needsKeys: false, name: `--clients ${path}` });
  return { bytes, file: JSON.parse(bytes.toString()) as Written, entries };
}

/** What was written: the content, its SHA-256, and the clients as a gateway reads them. */
interface Changed {
  readonly written: Written;
  readonly sha256: string;
  readonly entries: readonly ClientEntry[];
}

/**
 * Changes the file under its lock and reads it again. If an editor or another command writes at the same
 * time, the caller gets an error. A symbolic link stays, and the file that it points to is changed. Returns
 * the message about the change, the new content and its SHA-256. Throws config_invalid.
 */
async function change(
  path: string,
  changed: (file: Written) => Change,
): Promise<Pick<Change, 'said'> & Changed> {
  try {
    const at = await withoutLinks(path);
    return await withLock(at, async () => {
      const before = existsSync(at) ? readFile(at) : undefined;
      const { file, said } = changed(before?.file ?? { clients: [] });
      const content = Buffer.from(textOf(file));
      const entries = parseClientsFile(content, { needsKeys: false });
      if (before !== undefined && !(await read(at)).equals(before.bytes)) throw changedMeanwhile(path);
      if (before !== undefined) await overwrite(at, content);
      else if (!(await publish(at, content, MODE))) throw changedMeanwhile(path);
      await syncDirectory(dirname(at));
      if (!(await read(path)).equals(content)) throw changedMeanwhile(path);
      return { said, entries, sha256: createHash('sha256').update(content).digest('hex'), written: file };
    });
  } catch (thrown) {
    throw (thrown as NodeJS.ErrnoException).syscall === undefined
      ? thrown
      : invalid(
          `${path} cannot be written: ${(thrown as Error).message}. The user of this command must be able ` +
            'to write to it and to its directory; if a container got the file as a mount, change the original on the host',
        );
  }
}

/** Where the file lies, or will. Throws config_invalid for a link to a file that does not exist. */
async function withoutLinks(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (thrown) {
    const link = await readlink(path).catch(() => undefined);
    if (link === undefined) return path; // the file is new, or writing it says what is wrong
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown;
    const target = resolve(await realpath(dirname(path)), link);
    throw invalid(
      `${path} is a link to ${target}, which does not exist: to make that file, give it as --clients ${target}`,
    );
  }
}

const changedMeanwhile = (path: string): Error =>
  invalid(
    `${path} was changed by something else at the same time: look at it with "clients list", and run this again`,
  );

/** The JSON text of the file, with one client per line. */
function textOf({ clients, ...others }: Written): string {
  const rows = clients.map((client) => `    ${JSON.stringify(client)}`).join(',\n');
  const members = Object.entries(others).map(
    ([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)},\n`,
  );
  return `{\n${members.join('')}  "clients": [${rows === '' ? '' : `\n${rows}\n  `}]\n}\n`;
}

const ABOUT = {
  new: `Makes a token for each NAME, prints the tokens alone on stdout, one in a line, and adds their SHA-256 to
the file; where no file is given, it prints the entries for one on stderr. A client that is in the file gets one token more.
Where every client of the file has an apiKey, --api-key-file gives that of the new ones.`,
  list: 'Lists the clients of the file, with what each may use.',
  revoke: 'Takes a client out of the file, with all its tokens.',
} as const;
const WAITS = 'With --admin-address, it waits until the running proxy uses the new list.';
const NAMES = 'NAME: at most 64 letters, digits and . _ @ -, beginning with a letter or digit.';
const USAGE = {
  new: 'clients new NAME… [--clients FILE] [--api-key-file PATH] [--admin-address HOST:PORT]',
  list: 'clients list --clients FILE',
  revoke: 'clients revoke NAME --clients FILE [--admin-address HOST:PORT]',
} as const;

/** The help page of one of the three commands, or of all. */
function renderHelp(word = ''): string {
  const [known] = (['new', 'list', 'revoke'] as const).filter((each) => each === word);
  const about = {
    new: `${ABOUT.new} ${WAITS} ${NAMES}`,
    list: ABOUT.list,
    revoke: `${ABOUT.revoke} ${WAITS}`,
    all: `Who may use the gateway (--clients). new: ${ABOUT.new} list: ${ABOUT.list} revoke: ${ABOUT.revoke} ${WAITS} ${NAMES}`,
  };
  return helpPage(about[known ?? 'all'], known === undefined ? Object.values(USAGE) : [USAGE[known]], [
    section('Flags', [
      ['      --clients FILE', 'As the proxy got it (or PRIVATEMODE_PROXY_CLIENTS).'],
      ...(known === 'list' || known === 'revoke' ? [] : [API_KEY_FILE]),
      ...(known === 'list' ? [] : [ADMIN]),
      ['  -h, --help', 'Print this help.'],
    ]),
  ]);
}

const ADMIN = [
  '      --admin-address HOST:PORT',
  'As the proxy got it (or PRIVATEMODE_PROXY_ADMIN_ADDRESS).',
] as const;
