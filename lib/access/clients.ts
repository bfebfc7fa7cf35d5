/** Keeps the current clients: reads the clients file and its key files, and follows their changes. */
import { createHash, hkdfSync } from 'node:crypto';
import { dirname, resolve } from 'node:path';
import type { Clock } from '../clock.ts';
import { readKeyFile } from '../config/api-key.ts';
import { asPrivatemodeError } from '../errors.ts';
import { fileUnreadable } from '../files/path-refusal.ts';
import { type NoticeSink, whileUnusable } from '../observe/notices.ts';
import { readSmall, watchFiles } from '../watch-files.ts';
import { authenticate, type Client, type Credentials } from './authenticate-client.ts';
import { type ClientEntry, parseClientsFile } from './clients-file.ts';

export interface ClientsOptions {
  /** The path of the clients file. Key file paths in the clients file are relative to its directory. */
  readonly path: string;
  /** Whether each client must have a key file, because no API key is configured. */
  readonly needsKeys: boolean;
  /** The salt of the shared prompt cache, if there is one. */
  readonly sharedSalt: string | undefined;
  /** Called with the number of clients after each change of the clients. */
  readonly changed: (clients: number) => void;
  readonly notices: NoticeSink;
  readonly clock: Clock;
}

/** The content of the clients file and of the key files that it names. */
interface State {
  /** The bytes of the clients file. */
  readonly bytes: Uint8Array;
  readonly entries: readonly ClientEntry[];
  /** Path of a key file → the key in this file. */
  readonly keys: ReadonlyMap<string, string>;
}

export type Clients = Awaited<ReturnType<typeof openClients>>;

/**
 * Reads the clients and follows their files. An invalid clients file changes nothing, and an invalid key file
 * leaves its key unchanged. Each invalid file sets a notice until the file is valid. Throws config_invalid.
 */
export async function openClients(options: ClientsOptions) {
  const { notices, clock } = options;
  let state = await readState(options);
  let clients = tablesOf(state, options);
  const watch = watchFiles(state, () => readState(options, state), clock.times.clientsFileLook, {
    changed(next) {
      for (const of of state.keys.keys()) if (!next.keys.has(of)) notices.clear('client_key_unusable', of);
      state = next;
      clients = tablesOf(next, options);
      options.changed(clients.byName.size);
    },
    ...whileUnusable(notices, 'clients_file_unusable'),
    clock,
  });
  return {
    /** The client that sent a request with the given credentials. Throws client_unknown. */
    authenticate: (sent: Credentials): Client => authenticate(sent, clients.byToken, clock.now()),
    /**
     * The SHA-256 of the clients file in force, in lower-case hex. `clients revoke` waits for the SHA-256 of
     * the file that the command wrote.
     */
    sha256: (): string => createHash('sha256').update(state.bytes).digest('hex'),
    /** The client's current API key, or undefined if the client has no API key or does not exist. */
    keyOf: (name: string): string | undefined => clients.byName.get(name)?.apiKey,
    reload: watch.reload,
    close: watch.close,
  };
}

/**
 * Reads the current content of the files. If the clients file has the same bytes as in `before`, it is not
 * parsed again.
 */
async function readState({ path, needsKeys, notices }: ClientsOptions, before?: State): Promise<State> {
  const bytes = await readSmall(path).catch((thrown: unknown) => {
    throw fileUnreadable(`the file ${JSON.stringify(path)} of --clients`, thrown);
  });
  const entries =
    before !== undefined && bytes.equals(before.bytes)
      ? before.entries
      : parseClientsFile(bytes, { needsKeys });
  const keys = new Map<string, string>();
  for (const { apiKeyFile: of } of entries) {
    if (of === undefined || keys.has(of)) continue;
    try {
      keys.set(of, await readKeyFile(resolve(dirname(path), of), 'a client'));
      notices.clear('client_key_unusable', of);
    } catch (thrown) {
      const old = before?.keys.get(of);
      if (old === undefined) throw thrown;
      keys.set(of, old);
      notices.set('client_key_unusable', asPrivatemodeError(thrown).message, of);
    }
  }
  return { bytes: entries === before?.entries ? before.bytes : bytes, entries, keys };
}

/** Makes the tables in which requests look up their clients. */
function tablesOf({ entries, keys }: State, { sharedSalt }: ClientsOptions) {
  const clients = entries.map(
    ({ apiKeyFile, cacheSalt, ...entry }): Client => ({
      ...entry,
      apiKey: apiKeyFile === undefined ? undefined : keys.get(apiKeyFile),
      sharedSalt:
        sharedSalt === undefined || cacheSalt === 'shared' ? sharedSalt : clientSalt(sharedSalt, entry.name),
      mixSalt: cacheSalt === 'client' ? (own) => mixedSalt(sharedSalt, entry.name, own) : undefined,
    }),
  );
  return {
    byToken: new Map(clients.flatMap((client) => client.tokens.map((digest) => [digest, client]))),
    byName: new Map(clients.map((client) => [client.name, client])),
  };
}

/** Each derived salt depends on this label. A later rule gets another label, so that its salts differ. */
const LABEL = 'privatemode-proxy cache salt v1';
const SALT_BYTES = 32;

/**
 * Derives a salt of 64 hex digits, which every rule for salts allows (docs/protocol/inference.md 8). NUL
 * separates the parts of the context, because no client name contains NUL.
 */
const derive = (
  key: string | Uint8Array,
  salt: string,
  purpose: 'client' | 'request',
  name: string,
): string =>
  Buffer.from(hkdfSync('sha256', key, salt, `${LABEL}\0${purpose}\0${name}`, SALT_BYTES)).toString('hex');

/**
 * The salt for a client's requests without a salt: HKDF-SHA256 (RFC 5869) of the shared salt, with the
 * client's name as context. This salt is stable as long as the shared salt and the name do not change.
 */
const clientSalt = (sharedSalt: string, name: string): string => derive(sharedSalt, '', 'client', name);

/**
 * The salt that replaces `own`, the salt of a request as UTF-8. The new salt is the HKDF-SHA256 of `own`. The
 * salt of HKDF is the shared salt, or empty without one. The client's name is the context. So two clients
 * that send the same salt get different salts.
 */
const mixedSalt = (sharedSalt: string | undefined, name: string, own: Uint8Array): string =>
  derive(own, sharedSalt ?? '', 'request', name);
