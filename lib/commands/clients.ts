/** `privatemode-proxy clients new NAME…`, `list`, `revoke NAME`: changes and shows the file of --clients. */
import { createHash, randomBytes } from 'node:crypto';
import { constants, copyFileSync, existsSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type ClientEntry, parseClientsFile, TOKEN_PREFIX } from '../access/clients-file.ts';
import { pause } from '../clock.ts';
import { helpPage, section } from '../config/help.ts';
import { setting, text, valuesOf } from '../config/setting.ts';
import { asWritten, type HostPort, invalid, parsePath } from '../config/values.ts';
import { readNamed } from '../files/path-refusal.ts';
import { plural } from '../text.ts';
import { askStatus } from './ask-proxy.ts';
import { type Command, HELP, type Invocation, type Io } from './command.ts';
import { ADMIN_ADDRESS } from './status.ts';

const SETTINGS = [
  setting('clients', text('FILE', parsePath), {
    help: 'The file that the proxy was started with (or PRIVATEMODE_PROXY_CLIENTS); new makes it if there is none.',
  }),
  setting('api-key-file', text('PATH', asWritten), {
    help: 'For new: a file with the key of the service that the clients use, relative to the directory of FILE.',
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

/** The content of the file. Members that this command does not know stay in the file. */
interface Content {
  readonly clients: readonly Client[];
}
type Client = Readonly<{ name: string; tokens: readonly string[] }>;

const sha256Of = (content: string): string => createHash('sha256').update(content).digest('hex');

/**
 * Returns the exit code. stdout gets only the tokens (one per line in the order of the names), or the list,
 * or the name that was revoked; stderr gets all other texts. Throws config_invalid.
 */
async function runClients({ given, words: [word, ...names], io }: Invocation): Promise<number> {
  const { clients: path, adminAddress, apiKeyFile } = valuesOf(SETTINGS, given);
  if (path === undefined) throw invalid(`clients ${word} needs the --clients FILE of the proxy`);
  if (word === 'list') io.stdout.write(listed(readList(path).entries, io.clock.now()));
  else if (word === 'revoke') await revoke(names[0] as string, path, adminAddress, io);
  else addTokens(names, path, apiKeyFile?.replace(/^@/, ''), io);
  return 0;
}

/** Adds a token for each client, and creates the file if it is missing. Throws config_invalid. */
function addTokens(names: readonly string[], path: string, keyFile: string | undefined, io: Io): void {
  // The error does not quote the file's name: by mistake, the name may be the key itself.
  if (keyFile !== undefined && !existsSync(resolve(dirname(path), keyFile)))
    throw invalid(`--api-key-file names no file: it is relative to the directory of ${path}`);
  const key = keyFile === undefined ? {} : { apiKey: `@${keyFile}` };
  const fresh = names.map(
    (name) => [name, `${TOKEN_PREFIX}${randomBytes(32).toString('base64url')}`] as const,
  );
  const { entries } = changeFile(path, (before) => {
    const clients = new Map(before.map((client) => [client.name, client]));
    for (const [name, token] of fresh) {
      const known = clients.get(name) ?? { name, tokens: [] };
      clients.set(name, { ...known, tokens: [...known.tokens, sha256Of(token)], ...key });
    }
    return [...clients.values()];
  });
  const { stdout, stderr, clock } = io;
  // A terminal shows stderr and stdout, and a script reads only the tokens on stdout.
  for (const [name, token] of fresh) {
    stderr.write(`The token of ${name}, which is shown this once and stored nowhere:\n`);
    stdout.write(`${token}\n`);
  }
  for (const { name, tokens, expires = Infinity } of entries.filter((entry) => names.includes(entry.name))) {
    stderr.write(`${name} has ${plural(tokens.length, 'token')} in ${path} now.\n`);
    if (expires <= clock.now())
      stderr.write(
        `Warning: ${name} expired at ${new Date(expires).toISOString()}: its tokens are refused.\n`,
      );
  }
  stderr.write(`It is in force once the log of the proxy says ${LOG_LINE}.\n`);
}

const LOG_LINE = '"The clients file, or a key in it, was read again"';

/**
 * Takes a client out of the file, and waits until the running proxy uses the file. Throws config_invalid if
 * the file has no such client. Also throws if the proxy is not seen to use the new file, because the client
 * may then still have access.
 */
async function revoke(name: string, path: string, admin: HostPort | undefined, { stdout, clock }: Io) {
  readList(path); // throws if the file is missing, instead of creating it
  const { sha256 } = changeFile(path, (before) => {
    const clients = before.filter((client) => client.name !== name);
    if (clients.length < before.length) return clients;
    // The message does not quote the name, which may be a token.
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

/** The list for a person. Each line is a client, with the member names of the file. `now`: ms since 1970. */
function listed(entries: readonly ClientEntry[], now: number): string {
  const widest = Math.max(...entries.map(({ name }) => name.length));
  const lines = entries.map(({ name, tokens, expires = Infinity, limits, models, endpoints }) => {
    const until = expires < Infinity ? new Date(expires).toISOString() : undefined;
    const rules = { [expires <= now ? 'EXPIRED' : 'expires']: until, ...limits, models, endpoints };
    const known = Object.entries(rules).filter(([, value]) => value !== undefined);
    const count = plural(tokens.length, 'token');
    return `${name.padEnd(widest)}  ${[count, ...known.map((rule) => rule.join(' '))].join(', ')}`;
  });
  return `${[...lines, plural(lines.length, 'client')].join('\n')}\n`;
}

/** Reads the file. Throws config_invalid if reading fails, or if the proxy would refuse the file. */
function readList(path: string) {
  const bytes = Buffer.from(readNamed(`the file of --clients, ${path}`, path));
  // Whether each client needs a key is decided by --api-key of the proxy, which this command does not know.
  const entries = parseClientsFile(bytes, { needsKeys: false, name: `--clients ${path}` });
  return { entries, content: JSON.parse(bytes.toString()) as Content };
}

/**
 * Changes the file, and returns its clients and its SHA-256. The file is written in place, so that owner,
 * group, mode, ACL and mounts stay. After a rename, a container that has mounted the file would keep the old
 * file. A gateway that reads a half-written file keeps its list, because a truncated JSON object is never
 * valid JSON. A copy of the old list keeps other commands away while the file is written, and stays after a
 * crash. Throws config_invalid.
 */
function changeFile(path: string, change: (before: readonly Client[]) => readonly Client[]) {
  const isThere = existsSync(path);
  const file = isThere ? realpathSync(path) : path;
  const copy = `${file}.before`;
  let isCopyNeeded = true;
  try {
    if (isThere) copyFileSync(file, copy, constants.COPYFILE_EXCL);
    isCopyNeeded = false;
    const before = isThere ? readList(file) : { entries: [], content: { clients: [] } };
    const text = textOf({ ...before.content, clients: change(before.content.clients) });
    // If every client has a key file, the proxy may have no --api-key, so new clients need key files, too.
    const isKeyed = before.entries.every(({ apiKeyFile }) => apiKeyFile !== undefined);
    const needsKeys = isKeyed && before.entries.length > 0;
    const entries = parseClientsFile(Buffer.from(text), { needsKeys, name: 'the new list' });
    isCopyNeeded = true;
    writeFileSync(file, text, { mode: 0o600, flush: true, flag: isThere ? 'w' : 'wx' });
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
    if (isThere && !isCopyNeeded) rmSync(copy, { force: true });
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
    `Changes and shows the list of those who may use a gateway. It has the SHA-256 of each token only. Limits, models and
expiry are written into it by hand. A NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit.`,
    [
      'clients new NAME… [flags]     add a token for each, and print the tokens alone on stdout, one in a line',
      'clients list [flags]          show each client, and what it may use',
      'clients revoke NAME [flags]   remove a client, and wait until the proxy at --admin-address uses the new list; exit with 1 if that is not seen',
    ],
    [section('Flags', SETTINGS)],
  );
}
