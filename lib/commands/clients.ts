/**
 * `privatemode-proxy clients new NAME…`, `list` and `revoke NAME`: changes and shows the file of --clients.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants, copyFileSync, existsSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type ClientEntry, parseClientsFile, TOKEN_PREFIX } from '../access/clients-file.ts';
import { pause } from '../clock.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { setting, text, valuesOf } from '../config/setting.ts';
import { asWritten, type HostPort, invalid } from '../config/values.ts';
import { readNamed } from '../files/path-refusal.ts';
import { plural } from '../text.ts';
import { askStatus } from './ask-proxy.ts';
import { type Command, HELP, type Invocation, type Io } from './command.ts';
import { ADMIN_ADDRESS } from './status.ts';

const SETTINGS = [
  ...FLAGS.filter((row) => row.name === 'clients'),
  setting('api-key-file', text('PATH', asWritten), {
    help: 'For new: a file with the key of the service that the clients use, relative to the directory of the clients file.',
  }),
  ADMIN_ADDRESS,
  HELP,
] as const;

export const CLIENTS: Command = {
  flags: SETTINGS,
  takesEnvironment: true,
  words: [['new', 'NAME…'], ['list'], ['revoke', 'NAME']],
  help: renderHelp,
  run: runClients,
};

/** The content of the file. Members that this command does not know stay in it. */
interface Content {
  readonly clients: readonly { readonly name: string; readonly tokens: readonly string[] }[];
}

const sha256Of = (content: string): string => createHash('sha256').update(content).digest('hex');

/**
 * Returns the exit code. stdout gets only the tokens, one per line in the order of the names, or the list, or
 * who was revoked; stderr gets the rest. Throws config_invalid.
 */
async function runClients({ given, words: [word, ...names], io }: Invocation): Promise<number> {
  const { clients: path, adminAddress, apiKeyFile } = valuesOf(SETTINGS, given);
  if (path === undefined) throw invalid(`clients ${word} needs the --clients FILE of the proxy`);
  if (apiKeyFile !== undefined && word !== 'new')
    throw invalid('--api-key-file goes with clients new: the file has the apiKey of each client');
  if (word === 'list') io.stdout.write(listed(readList(path).entries, io.clock.now()));
  else if (word === 'revoke') await revoke(names[0] as string, path, adminAddress, io);
  else addTokens(names, path, apiKeyFile?.replace(/^@/, ''), io);
  return 0;
}

/** Makes the file if there is none. Throws config_invalid. */
function addTokens(names: readonly string[], path: string, keyFile: string | undefined, io: Io): void {
  if (keyFile !== undefined && !existsSync(resolve(dirname(path), keyFile)))
    throw invalid(
      // The value is not quoted: it may be the key itself, by mistake.
      `there is no file of the name that --api-key-file gives: write the path of a file, relative to the directory of ${path}`,
    );
  const key = keyFile === undefined ? {} : { apiKey: `@${keyFile}` };
  const fresh = names.map(
    (name) => [name, `${TOKEN_PREFIX}${randomBytes(32).toString('base64url')}`] as const,
  );
  const { entries } = changeFile(path, (file) => {
    const clients = new Map(file.clients.map((client) => [client.name, client]));
    for (const [name, token] of fresh) {
      const known = clients.get(name) ?? { name, tokens: [] };
      clients.set(name, { ...known, tokens: [...known.tokens, sha256Of(token)], ...key });
    }
    return { ...file, clients: [...clients.values()] };
  });
  const { stdout, stderr, clock } = io;
  // A terminal shows both lines, and a script reads only the second.
  for (const [name, token] of fresh) {
    stderr.write(`The token of ${name}, which is shown this once and stored nowhere:\n`);
    stdout.write(`${token}\n`);
  }
  for (const { name, tokens, expires = Infinity } of entries.filter((entry) => names.includes(entry.name))) {
    stderr.write(`${name} has ${plural(tokens.length, 'token')} in ${path} now.\n`);
    if (expires <= clock.now())
      stderr.write(
        `Warning: ${name} expired at ${new Date(expires).toISOString()}, so its tokens are refused: change "expires" in the file.\n`,
      );
  }
  stderr.write(`It is in force once the log of the proxy says ${LOG_LINE}.\n`);
}

const LOG_LINE = '"The clients file, or a key in it, was read again"';

/**
 * Takes a client out of the file, and waits until the running proxy uses the file. Throws config_invalid if
 * the file has no such client, and if the proxy is not seen to use it: the client may still have access.
 */
async function revoke(name: string, path: string, admin: HostPort | undefined, { stdout, clock }: Io) {
  readList(path); // a file that is not there is not made
  const { sha256 } = changeFile(path, (before) => {
    const clients = before.clients.filter((client) => client.name !== name);
    if (clients.length < before.clients.length) return { ...before, clients };
    // The name is not quoted: it may be a token.
    throw invalid(`${path} has no client of that name; "clients list" shows all names`);
  });
  stdout.write(`${name} is no longer in ${path}.\n`);
  const unseen = 'it is not known whether the proxy uses the new list';
  if (admin === undefined)
    throw invalid(`${unseen}: give --admin-address, or look in its log for ${LOG_LINE}`);
  const { clientsInForceWait, clientsInForceLook } = clock.times;
  const end = clock.monotonic() + clientsInForceWait;
  while ((await askStatus(admin, clock, ({ clientsFile }) => clientsFile)) !== sha256) {
    if (clock.monotonic() >= end)
      throw invalid(
        `${unseen} after ${clientsInForceWait / 1000} s: its log says why it cannot use the file. If it says nothing, ` +
          'it has no --clients, or reads another file (a copy, or a mount of the one that was replaced): restart it',
      );
    await pause(clock, clientsInForceLook, undefined, 'waiting');
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

/** Reads the file. Throws config_invalid, also if the proxy would refuse the file. */
function readList(path: string) {
  const bytes = Buffer.from(readNamed(`the file of --clients, ${path}`, path));
  // Whether each client needs a key is decided by --api-key of the proxy, which this command does not know.
  const entries = parseClientsFile(bytes, { needsKeys: false, name: `--clients ${path}` });
  return { entries, content: JSON.parse(bytes.toString()) as Content };
}

/**
 * Changes the file, and returns its clients and its SHA-256. It is written in place, so that owner, group,
 * mode, ACL and mounts stay: a container that has mounted it would keep the old one after a rename. A
 * truncated JSON object is never valid JSON, so a gateway that reads too early keeps the list that it has.
 * Meanwhile a copy has the old list; it keeps other commands away, and stays after a crash. Throws
 * config_invalid.
 */
function changeFile(path: string, change: (before: Content) => Content) {
  const isThere = existsSync(path);
  const file = isThere ? realpathSync(path) : path;
  const copy = `${file}.before`;
  let isCopyNeeded = true;
  try {
    if (isThere) copyFileSync(file, copy, constants.COPYFILE_EXCL);
    else writeFileSync(copy, '', { flag: 'wx' });
    isCopyNeeded = false;
    const before = isThere ? readList(file) : { entries: [], content: { clients: [] } };
    // If every client has a key of its own, there may be no --api-key for another one.
    const isKeyed = before.entries.every(({ apiKeyFile }) => apiKeyFile !== undefined);
    const needsKeys = isKeyed && before.entries.length > 0;
    const text = textOf(change(before.content));
    const entries = parseClientsFile(Buffer.from(text), { needsKeys, name: 'the new list' });
    isCopyNeeded = true;
    writeFileSync(file, text, { mode: 0o600, flush: true });
    isCopyNeeded = false;
    return { entries, sha256: sha256Of(text) };
  } catch (thrown) {
    const { syscall, message } = thrown as NodeJS.ErrnoException;
    if (syscall === undefined) throw thrown;
    const remedy = existsSync(copy)
      ? `${copy} has the list before: unless another command is at work, move it back if "clients list" cannot read the file, else delete it`
      : 'the user of this command must be able to write to the file and its directory; if a container has it as a mount, change it on the host';
    throw invalid(`${path} cannot be written: ${message}; ${remedy}`);
  } finally {
    if (!isCopyNeeded) rmSync(copy);
  }
}

/** The JSON text of the file, with one client per line. */
function textOf({ clients, ...others }: Content): string {
  const rows = clients.map((client) => `\n    ${JSON.stringify(client)}`);
  const frame = JSON.stringify({ ...others, clients: [] }, undefined, 2);
  return `${frame.slice(0, -']\n}'.length)}${rows.join()}\n  ]\n}\n`;
}

function renderHelp(): string {
  return helpPage(
    `Who may use the gateway. new: Adds a token for each NAME to the file, which it makes if there is none, and prints the
tokens alone on stdout, one in a line; the file has only their SHA-256. A client that is in the file gets one token more.
list: Shows the clients, and what each may use; limits, models and expiry are written into the file by hand. revoke:
Removes a client with all its tokens, waits until the proxy at --admin-address uses the new list, and exits with 1 if that
is not seen. NAME: at most 64 letters, digits and . _ @ -, beginning with a letter or digit.`,
    [
      'clients new NAME… --clients FILE [--api-key-file PATH]',
      'clients list --clients FILE',
      'clients revoke NAME --clients FILE --admin-address HOST:PORT',
    ],
    [section('Flags', SETTINGS)],
  );
}
