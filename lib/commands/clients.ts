/** `privatemode-proxy clients new NAME`, `list` and `revoke NAME`: who is in the file of --clients. */
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { readFile as read, realpath } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { CLIENT_NAME, type ClientEntry, parseClientsFile, TOKEN_PREFIX } from '../clients/clients-file.ts';
import { readNamedFile } from '../config/files.ts';
import { FLAGS } from '../config/flags.ts';
import { helpPage, section } from '../config/help.ts';
import { valuesOf } from '../config/setting.ts';
import { invalid } from '../config/values.ts';
import { publish, syncDirectory } from '../files/durable-file.ts';
import { withLock } from '../files/file-lock.ts';
import { copyBeside, overwrite, UNFINISHED } from '../files/overwrite.ts';
import type { StatusReport } from '../observe/status-report.ts';
import { plural } from '../text.ts';
import { type Asked, type Command, HELP } from './command.ts';
import { ADMIN_ADDRESS, type Address, askFor } from './status.ts';

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
  flags: [...SETTINGS, ADMIN_ADDRESS, HELP],
  takesEnvironment: true,
  words: [['new', 'NAME'], ['list'], ['revoke', 'NAME']],
  otherFlags: () =>
    'limits, models and expiry of a client go into the file, beside its tokens (docs/operations.md, "The clients file")',
  help: renderHelp,
  run: runClients,
};

/** Gives the exit code. Throws config_invalid, also where the proxy at --admin-address does not take the new list. */
async function runClients({ given, words: [word, name = ''], io }: Asked): Promise<number> {
  const { stdout, stderr, now } = io;
  const { clients: path } = valuesOf(SETTINGS, given);
  const { adminAddress } = valuesOf([ADMIN_ADDRESS], given);
  if (word !== 'list' && !CLIENT_NAME.test(name))
    throw invalid('NAME has at most 64 letters, digits and . _ @ -, and begins with a letter or digit');
  if (word === 'list') {
    stdout.write(listed(readFile(needed(word, path)).entries, (now?.() ?? new Date()).getTime()));
    return 0;
  }
  const { token, digest } = newToken();
  if (path === undefined && word === 'new') {
    stdout.write(entryFor(name, token, digest));
    return 0;
  }
  const file = needed(word, path);
  const tookOver = (owner: string): void => {
    stderr.write(`The lock ${file}.lock was older than 30 s, and was taken over from ${owner}.\n`);
  };
  const { said, sha256 } = await change(file, tookOver, (written) =>
    word === 'new' ? withToken(written, name, digest) : without(written, name, file),
  );
  if (word === 'new') stdout.write(shown(name, token));
  const done = said(file);
  if (adminAddress === undefined) {
    stdout.write(`${done} ${WHAT_TO_LOOK_FOR}\n`);
  } else {
    stdout.write(`${done}\n`);
    await untilInForce(adminAddress, sha256);
    stdout.write('The running proxy uses the new list now; running requests continue.\n');
  }
  if (word === 'new') stdout.write('\n');
  return 0;
}

const WHAT_TO_LOOK_FOR =
  'It is in force once the log of the proxy says "The clients file, or a key in it, was read again"; with --admin-address this command asks the proxy.';

function needed(word: string | undefined, path: string | undefined): string {
  if (path === undefined) throw invalid(`clients ${word} needs the --clients FILE of the proxy`);
  return path;
}

const shown = (name: string, token: string): string =>
  `The token of ${name}, which is shown this once and stored nowhere:\n\n  ${token}\n\n`;

function entryFor(name: string, token: string, digest: string): string {
  const where =
    'The entry for "clients" in the file of --clients (a second token of a client: only the digest, beside the first):';
  return `${shown(name, token)}${where}\n\n  ${JSON.stringify({ name, tokens: [digest] })}\n\n`;
}

/** A new content of the file, and what to say of it. */
interface Change {
  readonly file: Written;
  readonly said: (path: string) => string;
}

function withToken(file: Written, name: string, digest: string): Change {
  const known = file.clients.find((client) => client.name === name);
  if (known === undefined) {
    const clients = [...file.clients, { name, tokens: [digest] }];
    return { file: { ...file, clients }, said: (path) => `${name} is in ${path} now.` };
  }
  const added = { ...known, tokens: [...(known.tokens ?? []), digest] };
  const clients = file.clients.with(file.clients.indexOf(known), added);
  return {
    file: { ...file, clients },
    said: (path) => `${name} has ${plural(added.tokens.length, 'token')} in ${path} now.`,
  };
}

function without(file: Written, name: string, path: string): Change {
  const clients = file.clients.filter((client) => client.name !== name);
  if (clients.length === file.clients.length)
    throw invalid(`${path} has no client of that name; "clients list" shows all names`);
  return { file: { ...file, clients }, said: () => `${name} is no longer in ${path}.` };
}

/** ms that a running proxy gets to read the file; it looks twice a second. */
const PATIENCE = 10_000;

/** Resolves once every process of the proxy uses the file of this SHA-256. Throws config_invalid where one does not, or no proxy answers. */
async function untilInForce(address: Address, sha256: string): Promise<void> {
  const written = 'the file is written, but it is not known to be in force';
  for (const end = Date.now() + PATIENCE; ; await delay(100)) {
    let report: StatusReport;
    try {
      report = (await askFor(address, '/status')) as StatusReport;
    } catch (thrown) {
      throw invalid(`${written}: ${(thrown as Error).message}`);
    }
    const { clientsFile, workers } = report;
    if (!Array.isArray(clientsFile)) throw invalid(`${written}: the proxy that answered has no --clients`);
    if (clientsFile.length === workers && clientsFile.every((each) => each === sha256)) return;
    if (Date.now() < end) continue;
    throw invalid(
      `${written}: the running proxy still uses another list after ${PATIENCE / 1000} s. Look at its log: it says why it cannot use the file. ` +
        'If it says nothing, it reads another file (a copy, or a mount of the one that was replaced): restart it',
    );
  }
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
function readFile(path: string): {
  readonly bytes: Buffer;
  readonly file: Written;
  readonly entries: readonly ClientEntry[];
} {
  const bytes = Buffer.from(readNamedFile(`the file of --clients, ${path}`, path, readFileSync));
  if (bytes[0] === UNFINISHED)
    throw invalid(
      `${path} was not written to its end. Where no other command is writing it, the whole text is in ${copyBeside(path)}: copy it back with cat`,
    );
  // Which of them need tokens and keys, the flags of the proxy say.
  const entries = parseClientsFile(bytes, { needsKeys: false, tokensOptional: true });
  return { bytes, file: JSON.parse(bytes.toString()) as Written, entries };
}

/**
 * Changes the file under its lock, and reads it again: two commands at once change it one after the other, and of an editor that writes at
 * the same time the caller hears. A link stays, and what it points to is changed. Returns what to say, and the SHA-256 of the new content.
 * Throws config_invalid.
 */
async function change(
  path: string,
  tookOver: (owner: string) => void,
  changed: (file: Written) => Change,
): Promise<Pick<Change, 'said'> & { readonly sha256: string }> {
  try {
    const at = existsSync(path) ? await realpath(path) : path;
    return await withLock(at, tookOver, async () => {
      const before = existsSync(at) ? readFile(at) : undefined;
      const { file, said } = changed(before?.file ?? { clients: [] });
      const content = Buffer.from(textOf(file));
      parseClientsFile(content, { needsKeys: false, tokensOptional: true });
      if (before !== undefined && !(await read(at)).equals(before.bytes)) throw changedMeanwhile(path);
      if (before !== undefined) await overwrite(at, content);
      else if (!(await publish(at, content, MODE))) throw changedMeanwhile(path);
      await syncDirectory(dirname(at));
      if (!(await read(path)).equals(content)) throw changedMeanwhile(path);
      return { said, sha256: createHash('sha256').update(content).digest('hex') };
    });
  } catch (thrown) {
    throw (thrown as NodeJS.ErrnoException).syscall === undefined
      ? thrown
      : invalid(
          `${path} cannot be written: ${(thrown as Error).message}. It needs to be writable, with its directory, for the user of this ` +
            'command; of a file that a container got as a mount, change the original on the host',
        );
  }
}

const changedMeanwhile = (path: string): Error =>
  invalid(
    `${path} was changed by something else at the same time: look at it with "clients list", and run this again`,
  );

/** A client in each line. */
function textOf({ clients, ...others }: Written): string {
  const rows = clients.map((client) => `    ${JSON.stringify(client)}`).join(',\n');
  const members = Object.entries(others).map(
    ([name, value]) => `  ${JSON.stringify(name)}: ${JSON.stringify(value)},\n`,
  );
  return `{\n${members.join('')}  "clients": [${rows === '' ? '' : `\n${rows}\n  `}]\n}\n`;
}

function renderHelp(): string {
  return helpPage(
    `Who may use the gateway (--clients). new makes a token, prints it this once, and adds its SHA-256 to
the file, or prints the entry where no file is given; for a client that is in the file it is one
token more. revoke takes a client out, with all tokens. With --admin-address, both wait until the
running proxy uses the new list.
NAME: at most 64 letters, digits and . _ @ -, beginning with a letter or digit.`,
    [
      'clients new NAME [--clients FILE] [--admin-address HOST:PORT]',
      'clients list --clients FILE',
      'clients revoke NAME --clients FILE [--admin-address HOST:PORT]',
    ],
    [
      section('Flags', [
        ['      --clients FILE', 'As the proxy got it (or PRIVATEMODE_PROXY_CLIENTS).'],
        ['      --admin-address HOST:PORT', 'As the proxy got it (or PRIVATEMODE_PROXY_ADMIN_ADDRESS).'],
        ['  -h, --help', 'Print this help.'],
      ]),
    ],
  );
}
