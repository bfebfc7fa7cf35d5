/**
 * `privatemode-proxy clients new NAME…`, `list` and `revoke NAME`: changes and shows the file of --clients.
 */
import { createHash, randomBytes } from 'node:crypto';
import { copyFileSync, existsSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type ClientEntry, parseClientsFile, TOKEN_PREFIX } from '../access/clients-file.ts';
import { pause } from '../clock.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { setting, text, valuesOf } from '../config/setting.ts';
import { asWritten, invalid } from '../config/values.ts';
import { readNamed } from '../files/path-refusal.ts';
import type { StatusReport } from '../observe/status-report.ts';
import { nearest, plural } from '../text.ts';
import { type Address, askFor } from './ask-proxy.ts';
import { type Command, HELP, type Invocation, type Io } from './command.ts';
import { ADMIN_ADDRESS } from './status.ts';

const BARE =
  'give NAME before all flags (new takes several, revoke one, list none), and the file as --clients FILE';

const SETTINGS = [
  ...FLAGS.filter((row) => row.name === 'clients').map((row) => ({ ...row, bare: BARE })),
  setting('api-key-file', text('PATH', asWritten), {
    help: 'For new: a file with the key of the service that the clients use. PATH is relative to the directory of the clients file, which gets it as apiKey.',
  }),
  ADMIN_ADDRESS,
] as const;

export const CLIENTS: Command = {
  flags: [...SETTINGS, HELP],
  takesEnvironment: true,
  words: [['new', 'NAME…'], ['list'], ['revoke', 'NAME']],
  otherFlags: () => 'limits, models and expiry of a client go into the file, beside its tokens',
  help: renderHelp,
  run: runClients,
};

/** The content of the file. Members that this command does not know stay in it. */
interface Content {
  readonly clients: readonly Client[];
}

interface Client {
  readonly name: string;
  /** SHA-256 of each, in lower-case hex. */
  readonly tokens: readonly string[];
  readonly apiKey?: string;
}

const sha256Of = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex');

/** A token of 256 random bits for a client, and its SHA-256. */
function freshToken(name: string) {
  const token = `${TOKEN_PREFIX}${randomBytes(32).toString('base64url')}`;
  return { name, token, digest: sha256Of(token) };
}

type Fresh = ReturnType<typeof freshToken>;

/**
 * Returns the exit code. stdout gets only the tokens, one per line in the order of the names, or the list, or
 * who was revoked; stderr gets the rest. Throws config_invalid.
 */
async function runClients({ given, words: [word, ...names], io }: Invocation): Promise<number> {
  const { clients: path, adminAddress, apiKeyFile } = valuesOf(SETTINGS, given);
  if (apiKeyFile !== undefined && word !== 'new')
    throw invalid('--api-key-file goes with clients new: the file has the apiKey of each client');
  if (word === 'new') {
    addTokens(names.map(freshToken), path, apiKeyFile, io);
    return 0;
  }
  if (path === undefined) throw invalid(`clients ${word} needs the --clients FILE of the proxy`);
  const { entries } = readList(path);
  if (word === 'list') io.stdout.write(listed(entries, io.clock.now()));
  else await revoke(names[0] as string, path, adminAddress, io);
  return 0;
}

/** Makes the file if there is none. Without a path, prints the entries for one. */
function addTokens(
  fresh: readonly Fresh[],
  path: string | undefined,
  keyFile: string | undefined,
  { stdout, stderr, clock }: Io,
): void {
  const entries = fresh.map(({ name, digest }) => ({ name, tokens: [digest] }));
  parseClientsFile(Buffer.from(textOf({ clients: entries })), { needsKeys: false, name: 'clients new NAME' });
  if (path === undefined && keyFile !== undefined)
    throw invalid('--api-key-file needs the --clients FILE of the proxy');
  const clients =
    path === undefined ? [] : changeFile(path, (before) => withTokens(before, fresh, path, keyFile));
  // A terminal shows both lines, and a script reads only the second.
  for (const { name, token } of fresh) {
    stderr.write(`The token of ${name}, which is shown this once and stored nowhere:\n`);
    stdout.write(`${token}\n`);
  }
  if (path === undefined) {
    const what =
      'For "clients" in the file of --clients (a second token of a client: only the digest, beside the first):';
    stderr.write(`${[what, ...entries.map((entry) => `  ${JSON.stringify(entry)}`)].join('\n')}\n`);
    return;
  }
  for (const client of clients)
    if (fresh.some(({ name }) => name === client.name)) stderr.write(aboutFresh(client, path, clock.now()));
  stderr.write(`It is in force once the log of the proxy says ${LOG_LINE}.\n`);
}

const LOG_LINE = '"The clients file, or a key in it, was read again"';

/** About a client that got a token. `now`: ms since 1970. */
function aboutFresh({ name, tokens, expires = Infinity }: ClientEntry, path: string, now: number): string {
  const count = `${name} has ${plural(tokens.length, 'token')} in ${path} now.\n`;
  if (expires > now) return count;
  return `${count}Warning: ${name} expired at ${new Date(expires).toISOString()}, so its tokens are refused: change "expires" in the file.\n`;
}

/** Throws config_invalid for a change after which a gateway without --api-key would refuse the file. */
function withTokens(file: Content, fresh: readonly Fresh[], path: string, apiKeyFile?: string): Content {
  const keyFile = apiKeyFile?.replace(/^@/, '');
  if (keyFile !== undefined && !existsSync(resolve(dirname(path), keyFile)))
    throw invalid(
      // The value is not quoted: it may be the key itself, by mistake.
      `there is no file of the name that --api-key-file gives: write the path of a file, relative to the directory of ${path}`,
    );
  const key = keyFile === undefined ? {} : { apiKey: `@${keyFile}` };
  const clients = new Map(file.clients.map((client) => [client.name, client]));
  for (const { name, digest } of fresh) {
    const known: Client = clients.get(name) ?? { name, tokens: [] };
    clients.set(name, { ...known, tokens: [...known.tokens, digest], ...key });
  }
  const changed = [...clients.values()];
  const hasKey = ({ apiKey }: Client): boolean => apiKey !== undefined;
  if (file.clients.length > 0 && file.clients.every(hasKey) && !changed.every(hasKey))
    throw invalid(
      `every client in ${path} has an apiKey, and a gateway without --api-key refuses a file in which a client has none: add ` +
        '--api-key-file PATH, a file with the key that the new clients use, relative to the directory of the clients file',
    );
  return { ...file, clients: changed };
}

/**
 * Takes a client out of the file, and waits until the running proxy uses the file. Throws config_invalid if
 * the file has no such client, and if the proxy is not seen to use it: the client may still have access.
 */
async function revoke(name: string, path: string, admin: Address | undefined, { stdout, clock }: Io) {
  changeFile(path, (before) => {
    const clients = before.clients.filter((client) => client.name !== name);
    if (clients.length < before.clients.length) return { ...before, clients };
    const near = clients.find((client) => nearest(name.toLowerCase(), [client.name.toLowerCase()]));
    const hint = near === undefined ? '; "clients list" shows all names' : `. Did you mean ${near.name}?`;
    throw invalid(`${path} has no client of that name${hint}`); // not quoted: it may be a token
  });
  stdout.write(`${name} is no longer in ${path}.\n`);
  const { clientsInForceWait, clientsInForceLook } = clock.times;
  const end = clock.monotonic() + clientsInForceWait;
  try {
    if (admin === undefined)
      throw invalid(`give --admin-address, or look in the log of the proxy for ${LOG_LINE}`);
    for (; ; await pause(clock, clientsInForceLook, undefined, 'waiting')) {
      const { clientsFile } = (await askFor(admin, '/status', clock)) as StatusReport;
      if (typeof clientsFile !== 'string') throw invalid('the proxy that answered has no --clients');
      // Another command may have changed the file meanwhile, and an editor may have undone this change.
      const { bytes, entries } = readList(path);
      if (clientsFile === sha256Of(bytes) && entries.every((client) => client.name !== name)) break;
      if (clock.monotonic() >= end)
        throw invalid(
          `the running proxy still uses another list after ${clientsInForceWait / 1000} s. Look at its log: it says why it cannot use the file. ` +
            'If it says nothing, it reads another file (a copy, or a mount of the one that was replaced): restart it',
        );
    }
  } catch (thrown) {
    throw invalid(`the file is written, but it is not known to be in force: ${(thrown as Error).message}`);
  }
  stdout.write('The running proxy uses the new list now; running requests continue.\n');
}

/** The list for a person: one line per client, in the words of the file. `now`: ms since 1970. */
function listed(entries: readonly ClientEntry[], now: number): string {
  const widest = Math.max(...entries.map(({ name }) => name.length));
  const lines = entries.map(({ name, tokens, expires, limits, models, endpoints }) => {
    const isOver = expires !== undefined && expires <= now;
    const until = expires === undefined ? undefined : new Date(expires).toISOString();
    const rules = Object.entries({ [isOver ? 'EXPIRED' : 'expires']: until, ...limits, models, endpoints });
    const known = rules.filter(([, value]) => value !== undefined);
    const count = plural(tokens.length, 'token');
    return `${name.padEnd(widest)}  ${[count, ...known.map((rule) => rule.join(' '))].join(', ')}`;
  });
  return `${[...lines, plural(lines.length, 'client')].join('\n')}\n`;
}

const backupOf = (path: string): string => `${path}.bak`;

/** Reads the file. Throws config_invalid, also if the proxy would refuse the file. */
function readList(path: string) {
  const bytes = Buffer.from(readNamed(`the file of --clients, ${path}`, path));
  const backup = backupOf(realpathSync(path));
  const before = existsSync(backup) ? `, whose list before the last change is in ${backup}` : '';
  // Whether each client needs a key is decided by --api-key of the proxy, which this command does not know.
  const entries = parseClientsFile(bytes, { needsKeys: false, name: `--clients ${path}${before}` });
  return { bytes, entries, content: JSON.parse(bytes.toString()) as Content };
}

/**
 * Changes the file under a lock, and returns its clients. The file is written in place, so that owner, group,
 * mode, ACL and mounts stay: a container that has mounted it would keep the old one after a rename. A
 * truncated JSON object is never valid JSON, so a gateway that reads too early keeps the list that it has.
 * The old list is in `backupOf` meanwhile, and stays there after a crash. Throws config_invalid.
 */
function changeFile(path: string, change: (before: Content) => Content): readonly ClientEntry[] {
  const file = existsSync(path) ? realpathSync(path) : path;
  const lock = `${file}.lock`;
  let isLocked = false;
  try {
    writeFileSync(lock, '', { flag: 'wx' });
    isLocked = true;
    const isThere = existsSync(file);
    const content = textOf(change(isThere ? readList(file).content : { clients: [] }));
    const entries = parseClientsFile(Buffer.from(content), { needsKeys: false });
    if (isThere) copyFileSync(file, backupOf(file));
    writeFileSync(file, content, { mode: 0o600, flush: true });
    rmSync(backupOf(file), { force: true });
    return entries;
  } catch (thrown) {
    const { code, syscall, message } = thrown as NodeJS.ErrnoException;
    if (syscall === undefined) throw thrown;
    if (code === 'EEXIST')
      throw invalid(
        `${lock} is there: another command is changing ${path}; if it was killed, delete that file`,
      );
    throw invalid(
      `${path} cannot be written: ${message}. The user of this command must be able to write to it and to its ` +
        'directory; if a container got the file as a mount, change the original on the host',
    );
  } finally {
    if (isLocked) rmSync(lock, { force: true });
  }
}

/** The JSON text of the file, with one client per line. */
function textOf({ clients, ...others }: Content): string {
  const rows = clients.map((client) => `    ${JSON.stringify(client)}`).join(',\n');
  const members = Object.entries(others).map(
    ([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)},\n`,
  );
  return `{\n${members.join('')}  "clients": [${rows === '' ? '' : `\n${rows}\n  `}]\n}\n`;
}

function renderHelp(): string {
  return helpPage(
    `Who may use the gateway (--clients). new: Makes a token for each NAME, prints the tokens alone on stdout, one in a
line, and adds their SHA-256 to the file; without a file it prints the entries for one on stderr. A client that is in the
file gets one token more. list: Lists the clients of the file, with what each may use. revoke: Takes a client out of the
file, with all its tokens. Then it waits until the proxy at --admin-address uses the new list, and fails if
that cannot be seen. NAME: at most 64 letters, digits and . _ @ -, beginning with a letter or digit.`,
    [
      'clients new NAME… [--clients FILE] [--api-key-file PATH]',
      'clients list --clients FILE',
      'clients revoke NAME --clients FILE --admin-address HOST:PORT',
    ],
    [section('Flags', [...SETTINGS, HELP])],
  );
}
