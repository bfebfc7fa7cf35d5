/** The clients as they are now: reads the file and the keys that it names, and follows both. */
import { createHash, hkdfSync } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { readApiKey } from '../config/api-key.ts';
import { asPrivatemodeError, fileUnreadable, type PrivatemodeError } from '../errors.ts';
import { UNFINISHED } from '../files/overwrite.ts';
import { watchFiles } from '../watch-files.ts';
import { authenticate, type Client, type Credentials, createThrottle } from './authenticate.ts';
import type { ClientCertificate } from './certificates.ts';
import { type ClientEntry, MOST_BYTES, parseClientsFile } from './clients-file.ts';

/** A client that is taken out of the file is refused within a second. */
const POLL_MS = 500;

export interface ClientsOptions {
  /** Of the file. The key files in it are relative to its directory. */
  readonly path: string;
  /** No key is configured, so each client must bring one. */
  readonly needsKeys: boolean;
  /** Clients may be known by certificates (--tls-client-ca), so they need no tokens. */
  readonly tokensOptional?: boolean | undefined;
  /** The salt of the shared prompt cache, if there is one. */
  readonly sharedSalt: string | undefined;
}

/** What the files hold. */
interface State {
  /** Of the clients file. */
  readonly bytes: Uint8Array;
  readonly entries: readonly ClientEntry[];
  /** Key file → the key in it. */
  readonly keys: ReadonlyMap<string, string>;
}

export type Clients = Awaited<ReturnType<typeof openClients>>;

/** Reads the files, for its errors. Throws config_invalid. */
export async function checkClients(options: Omit<ClientsOptions, 'sharedSalt'>): Promise<void> {
  await readState(options);
}

/**
 * Reads the clients and follows their files. `changed` is called with the number of clients after each change and where the old content is
 * back after a failure. A bad clients file changes nothing: `failed` gets the reason, once per reason, and `recovered` is called once it
 * is good. A bad key file leaves that key as it was: `keyFailed` gets its path and the reason, once per reason, and no reason once it is
 * good, or is not named any more. Throws config_invalid.
 */
export async function openClients(
  options: ClientsOptions & {
    /** The certificate that a connection showed. */
    readonly certificateOf?: ((connection: object) => ClientCertificate | undefined) | undefined;
    readonly changed: (clients: number) => void;
    readonly failed: (error: PrivatemodeError) => void;
    readonly recovered?: (() => void) | undefined;
    readonly keyFailed?: ((path: string, error: PrivatemodeError | undefined) => void) | undefined;
  },
) {
  let state = await readState(options);
  let clients = clientsOf(state, options);
  const throttle = createThrottle();
  const told = new Map<string, string>();
  const keyFailed = (path: string, error: PrivatemodeError | undefined): void => {
    if (told.get(path) === error?.message) return;
    if (error === undefined) told.delete(path);
    else told.set(path, error.message);
    options.keyFailed?.(path, error);
  };
  let isBroken = false;
  const watch = watchFiles({
    known: state,
    async read() {
      const next = await readState(options, { before: state, keyFailed });
      // The old content is back after an error: nothing changes, but whoever repaired the file waits for the line that says so.
      if (isBroken && isDeepStrictEqual(next, state)) options.changed(clients.length);
      isBroken = false;
      for (const path of told.keys()) if (!next.keys.has(path)) keyFailed(path, undefined);
      return next;
    },
    changed(next) {
      state = next;
      clients = clientsOf(next, options);
      options.changed(clients.length);
    },
    failed(error) {
      isBroken = true;
      options.failed(error);
    },
    recovered: options.recovered,
    interval: POLL_MS,
  });
  const { certificateOf = () => undefined } = options;
  return {
    /** The client that a request on `connection` (its socket) comes from. Throws client_unknown and client_throttled. */
    authenticate: (
      { authorization, apiKeyHeader, address }: Omit<Credentials, 'certificate'>,
      connection: object,
    ): Client =>
      authenticate(
        { authorization, apiKeyHeader, address, certificate: certificateOf(connection) },
        clients,
        throttle,
      ),
    /** SHA-256 of the clients file in force, in lower-case hex: `clients revoke` waits for that of the one that it wrote. */
    sha256: (): string => createHash('sha256').update(state.bytes).digest('hex'),
    reload: watch.reload,
    close: watch.close,
  };
}

/** What the files hold now. Of those that hold what they held `before`, nothing is read anew. */
async function readState(
  { path, needsKeys, tokensOptional }: Omit<ClientsOptions, 'sharedSalt'>,
  known?: {
    readonly before: State;
    readonly keyFailed: (path: string, error: PrivatemodeError | undefined) => void;
  },
): Promise<State> {
  const bytes = await readSettled(path, known?.before.bytes).catch((thrown: unknown) => {
    throw fileUnreadable(`the file ${JSON.stringify(path)} of --clients`, path, thrown);
  });
  const before = known?.before;
  const entries =
    before !== undefined && bytes.equals(before.bytes)
      ? before.entries
      : parseClientsFile(bytes, { needsKeys, tokensOptional });
  const keys = new Map<string, string>();
  for (const { apiKeyFile } of entries) {
    if (apiKeyFile === undefined || keys.has(apiKeyFile)) continue;
    try {
      keys.set(apiKeyFile, await readKey(resolve(dirname(path), apiKeyFile)));
      known?.keyFailed(apiKeyFile, undefined);
    } catch (thrown) {
      const old = before?.keys.get(apiKeyFile);
      if (old === undefined) throw thrown;
      keys.set(apiKeyFile, old);
      known?.keyFailed(apiKeyFile, asPrivatemodeError(thrown));
    }
  }
  return { bytes: entries === before?.entries ? before.bytes : bytes, entries, keys };
}

/**
 * The bytes of a file. It is read again and again: a pipe would keep one thread after the other waiting, until none is left to look up a
 * name, and a huge file would fill the memory each time. Throws where it is either, and what the file system throws.
 */
async function readSmall(path: string): Promise<Buffer> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK); // or a pipe is waited for right here
  const stat = await file.stat();
  if (!stat.isFile()) throw new Error('it is not a regular file');
  if (stat.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
  return await file.readFile();
}

/** How often, and after how many ms, a file is read again that is being written. */
const SETTLING = { tries: 6, pause: 40 } as const;

/**
 * The bytes of a file that is written in place, as nobody is writing it. What differs from `before` is read until two reads agree, or a
 * read could mix the old content with the new; a file that stays unfinished is given as it is, and is no JSON. Throws as readSmall.
 */
async function readSettled(path: string, before: Uint8Array | undefined): Promise<Buffer> {
  let last = await readSmall(path);
  if (before !== undefined && last.equals(before)) return last;
  for (let tries = 0; tries < SETTLING.tries; tries++) {
    const next = await readSmall(path);
    if (next.equals(last) && next[0] !== UNFINISHED) return next;
    last = next;
    await delay(SETTLING.pause);
  }
  if (last[0] === UNFINISHED) return last;
  throw new Error('it changes all the time');
}

/** Throws config_invalid, as for --api-key @FILE. */
async function readKey(path: string): Promise<string> {
  const read = await readSmall(path).catch((thrown: Error) => thrown);
  const bytes = (): Buffer => {
    if (read instanceof Error) throw read;
    return read;
  };
  return readApiKey({ kind: 'file', path }, bytes, 'a client');
}

function clientsOf({ entries, keys }: State, { sharedSalt }: ClientsOptions): readonly Client[] {
  return entries.map(({ apiKeyFile, cacheSalt, ...entry }) => ({
    ...entry,
    apiKey: apiKeyFile === undefined ? undefined : keys.get(apiKeyFile),
    sharedSalt:
      sharedSalt === undefined || cacheSalt === 'shared' ? sharedSalt : clientSalt(sharedSalt, entry.name),
    mixSalt: cacheSalt === 'client' ? (own) => mixedSalt(sharedSalt, entry.name, own) : undefined,
  }));
}

/** In the derivations, so that a later rule gives other salts. */
const LABEL = 'privatemode-proxy cache salt v1';
const SALT_BYTES = 32;

/** 64 hex digits: within every rule for a salt (docs/protocol/inference.md 8). No name contains a NUL. */
const derive = (
  key: string | Uint8Array,
  salt: string,
  purpose: 'client' | 'request',
  name: string,
): string =>
  Buffer.from(hkdfSync('sha256', key, salt, `${LABEL}\0${purpose}\0${name}`, SALT_BYTES)).toString('hex');

/**
 * The salt of a client's requests that bring none: HKDF-SHA256 (RFC 5869) of the shared salt, with the client's name as context. Stays
 * the same as long as both do.
 */
const clientSalt = (sharedSalt: string, name: string): string => derive(sharedSalt, '', 'client', name);

/**
 * What takes the place of a salt that a request brings (its text in UTF-8): HKDF-SHA256 of it, salted with the shared one, if any, with
 * the client's name as context. Two clients that send the same salt get different ones.
 */
const mixedSalt = (sharedSalt: string | undefined, name: string, own: Uint8Array): string =>
  derive(own, sharedSalt ?? '', 'request', name);
