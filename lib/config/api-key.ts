import { readFile as readFileAsync } from 'node:fs/promises';
import { PrivatemodeError } from '../errors.ts';

/** The bytes of a file; throws what the file system throws. */
export type ReadFile = (path: string) => Uint8Array;

export type ApiKeySource =
  | { readonly kind: 'literal'; readonly value: string }
  | { readonly kind: 'file'; readonly path: string };

const POLL_MS = 5_000;

/**
 * --api-key: a literal taken verbatim, or `@file`, which must be readable and hold a key. `flag` is what the setting is
 * called. Throws config_invalid, also for a literal that is the name of a file.
 */
export function parseApiKey(text: string, readFile: ReadFile, flag = '--api-key'): ApiKeySource {
  if (text.startsWith('@')) {
    const path = text.slice(1);
    readApiKey({ kind: 'file', path }, readFile);
    return { kind: 'file', path };
  }
  const value = usableKey(text, flag);
  if (isFile(text, readFile)) {
    throw new PrivatemodeError(
      'config_invalid',
      `${flag} is the name of a file here, not a key: write @ in front of it, as in --api-key @key.txt`,
    );
  }
  return { kind: 'literal', value };
}

/** The key itself. Throws config_invalid, without quoting any of it. */
export function readApiKey(source: ApiKeySource, readFile: ReadFile): string {
  if (source.kind === 'literal') return source.value;
  let bytes: Uint8Array;
  try {
    bytes = readFile(source.path);
  } catch (thrown) {
    throw unreadable(source.path, thrown);
  }
  return keyInFile(source.path, bytes);
}

export interface ApiKeyWatch {
  /** Reads the file now (SIGHUP); resolves when it is done. */
  reload(): Promise<void>;
  close(): void;
}

/**
 * Follows the key file. It is read every few seconds rather than watched: mounted secrets are replaced by renaming
 * directories, which file watchers miss. `onKey` gets each new key; `onError` gets the reason why the old one stays,
 * once per reason.
 */
export function watchApiKey(options: {
  readonly path: string;
  readonly current: string;
  readonly onKey: (key: string) => void;
  readonly onError: (error: PrivatemodeError) => void;
  readonly pollMs?: number;
}): ApiKeyWatch {
  const { path, onKey, onError } = options;
  let current = options.current;
  let complaint: string | undefined;
  let closed = false;

  async function reload(): Promise<void> {
    try {
      const key = keyInFile(path, await readFileAsync(path).catch(rethrowUnreadable));
      complaint = undefined;
      if (closed || key === current) return;
      current = key;
      onKey(key);
    } catch (thrown) {
      if (!(thrown instanceof PrivatemodeError)) throw thrown;
      if (!closed && thrown.message !== complaint) onError(thrown);
      complaint = thrown.message;
    }
  }
  const rethrowUnreadable = (thrown: unknown): never => {
    throw unreadable(path, thrown);
  };

  const timer = setInterval(() => void reload(), options.pollMs ?? POLL_MS).unref();
  return {
    reload,
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}

function isFile(path: string, readFile: ReadFile): boolean {
  try {
    readFile(path);
    return true;
  } catch {
    return false;
  }
}

/** White space around the key and a byte order mark are an editor's; PowerShell writes UTF-16. */
function keyInFile(path: string, bytes: Uint8Array): string {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf16le' : 'utf8';
  return usableKey(Buffer.from(bytes).toString(encoding).trim(), `the API key file ${JSON.stringify(path)}`);
}

/** What people put around a key. A key may end in `=`, so an assignment has something else behind it. */
const WRAPPED: readonly (readonly [pattern: RegExp, words: string])[] = [
  [/^(["'`]).*\1$/, 'has quotes around the key: leave them out'],
  [/^(?:export\s+)?[A-Za-z_]\w*\s*=\s*[^=\s]/, 'holds NAME=KEY: leave out the name and the equals sign'],
];

/** A key travels as a header value: visible ASCII, blanks only inside. */
function usableKey(key: string, what: string): string {
  if (key === '') throw new PrivatemodeError('config_invalid', `${what} is empty`);
  const wrapped = WRAPPED.find(([pattern]) => pattern.test(key));
  if (wrapped !== undefined) throw new PrivatemodeError('config_invalid', `${what} ${wrapped[1]}`);
  if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key)) {
    throw new PrivatemodeError(
      'config_invalid',
      `${what} holds characters that no API key has (one key, plain ASCII)`,
    );
  }
  return key;
}

const unreadable = (path: string, thrown: unknown): PrivatemodeError =>
  new PrivatemodeError(
    'config_invalid',
    `failed to read API key file ${JSON.stringify(path)}: ${(thrown as Error).message}`,
  );
