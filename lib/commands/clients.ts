/** `privatemode-proxy clients new NAME`, `list` and `revoke NAME`: who is in the file of --clients. */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { chown, realpath, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CLIENT_NAME, type ClientEntry, parseClientsFile, TOKEN_PREFIX } from '../clients/clients-file.ts';
import { readNamedFile } from '../config/files.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { valuesOf } from '../config/setting.ts';
import { invalid } from '../config/values.ts';
import { replace, syncDirectory } from '../files/durable-file.ts';
import { plural } from '../text.ts';
import { type Asked, type Command, HELP } from './command.ts';

const TOKEN_BYTES = 32;
/** Of a new file. */
const MODE = 0o600;

/** A fresh token of 256 random bits, and its SHA-256 in lower-case hex. */
export function newToken(): { readonly token: string; readonly digest: string } {
  const token = `${TOKEN_PREFIX}${randomBytes(TOKEN_BYTES).toString('base64url')}`;
  return { token, digest: createHash('sha256').update(token).digest('hex') };
}

const SETTINGS = FLAGS.filter((row) => row.name === 'clients');

export const CLIENTS: Command = {
  flags: [...SETTINGS, HELP],
  takesEnvironment: true,
  words: [['new', 'NAME'], ['list'], ['revoke', 'NAME']],
  otherFlags: () =>
    'limits, models and expiry of a client go into the file, beside its tokens (docs/operations.md, "The clients file")',
  help: renderHelp,
  run: runClients,
};

/** Gives the exit code. Throws config_invalid. */
async function runClients({ given, words: [word, name = ''], io: { stdout, now } }: Asked): Promise<number> {
  const { clients: path } = valuesOf(SETTINGS, given);
  if (word !== 'list' && !CLIENT_NAME.test(name))
    throw invalid('NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit');
  if (word === 'new') stdout.write(await addToken(name, path));
  else if (path === undefined) throw invalid(`clients ${word} needs the --clients FILE of the proxy`);
  else if (word === 'list') stdout.write(listed(readFile(path).entries, (now?.() ?? new Date()).getTime()));
  else stdout.write(await revoke(name, path));
  return 0;
}

async function addToken(name: string, path: string | undefined): Promise<string> {
  const { token, digest } = newToken();
  const shown = [`The token of ${name}, which is shown this once and stored nowhere:`, '', `  ${token}`, ''];
  const entry = { name, tokens: [digest] };
  if (path === undefined) {
    const where =
      'The entry for "clients" in the file of --clients (a second token of a client: only the digest, beside the first):';
    return [...shown, where, '', `  ${JSON.stringify(entry)}`, '', ''].join('\n');
  }
  const file: Written = existsSync(path) ? readFile(path).file : { clients: [] };
  const known = file.clients.find((client) => client.name === name);
  const added = { ...known, name, tokens: [...(known?.tokens ?? []), digest] };
  const clients =
    known === undefined ? [...file.clients, entry] : file.clients.with(file.clients.indexOf(known), added);
  await writeFile(path, { ...file, clients });
  const is =
    known === undefined
      ? `${name} is in ${path} now`
      : `${name} has ${plural(added.tokens.length, 'token')} in ${path} now`;
  return [...shown, `${is}; a running proxy reads it within a second.`, '', ''].join('\n');
}

async function revoke(name: string, path: string): Promise<string> {
  const { file } = readFile(path);
  const clients = file.clients.filter((client) => client.name !== name);
  if (clients.length === file.clients.length)
    throw invalid(`${path} has no client of that name; "clients list" shows all names`);
  await writeFile(path, { ...file, clients });
  return `${name} is no longer in ${path}. A running proxy refuses this client within a second; running requests continue.\n`;
}

/** A row for each client; `now`: ms since 1970. */
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

/** The file as it is written: members that this command does not know stay. */
interface Written {
  readonly clients: readonly { readonly name: string; readonly tokens?: readonly string[] }[];
}

/** Throws config_invalid, also where the proxy would refuse the file. */
function readFile(path: string): { readonly file: Written; readonly entries: readonly ClientEntry[] } {
  const bytes = readNamedFile(`the file of --clients, ${path}`, path, readFileSync);
  // Which of them need tokens and keys, the flags of the proxy say.
  const entries = parseClientsFile(bytes, { needsKeys: false, tokensOptional: true });
  return { file: JSON.parse(Buffer.from(bytes).toString()) as Written, entries };
}

/**
 * Puts the new file in the place of the old one at once, a client in each line. It keeps owner and mode; a link stays, and what it points
 * to is replaced. Throws config_invalid.
 */
async function writeFile(path: string, { clients, ...others }: Written): Promise<void> {
  const rows = clients.map((client) => `    ${JSON.stringify(client)}`).join(',\n');
  const members = Object.entries(others).map(
    ([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)},\n`,
  );
  const text = `{\n${members.join('')}  "clients": [${rows === '' ? '' : `\n${rows}\n  `}]\n}\n`;
  parseClientsFile(Buffer.from(text), { needsKeys: false, tokensOptional: true });
  const me = process.getuid?.();
  try {
    const at = existsSync(path) ? await realpath(path) : path;
    const { mode, uid, gid } = existsSync(at) ? await stat(at) : { mode: MODE, uid: me, gid: undefined };
    if (uid !== me && me !== 0)
      throw invalid(`${path} belongs to another user: run this command as that user, or as root`);
    await replace(at, text, mode & 0o777);
    if (uid !== me) await chown(at, uid as number, gid as number);
    await syncDirectory(dirname(at));
  } catch (thrown) {
    throw (thrown as NodeJS.ErrnoException).syscall === undefined
      ? thrown
      : invalid(`${path} cannot be written: ${(thrown as Error).message}`);
  }
}

function renderHelp(): string {
  return helpPage(
    `Who may use the gateway (--clients). new makes a token, prints it this once, and adds its SHA-256 to
the file, or prints the entry where no file is given; for a client that is in the file it is one
token more. revoke takes a client out, with all tokens. A running proxy follows within a second.
NAME: at most 64 letters, digits and . _ @ -, beginning with a letter or digit.`,
    [
      'clients new NAME [--clients FILE]',
      'clients list --clients FILE',
      'clients revoke NAME --clients FILE',
    ],
    [
      section('Flags', [
        ['      --clients FILE', 'As the proxy got it (or PRIVATEMODE_PROXY_CLIENTS).'],
        ['  -h, --help', 'Print this help.'],
      ]),
    ],
  );
}
