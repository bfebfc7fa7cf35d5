import { readFile as readFileAsync } from 'node:fs/promises';
import { PrivatemodeError } from '../errors.ts';

/** The bytes of a file; throws what the file system throws. */
export type ReadFile = (path: string) => Uint8Array;

export type ApiKeySource =
  | { readonly kind: 'literal'; readonly value: string }
  | { readonly kind: 'file'; readonly path: string };

const POLL_MS = 5_000;

/** --api-key: a literal taken verbatim, or `@file`, which must be readable and hold a key. Throws config_invalid. */
export function parseApiKey(text: string, readFile: ReadFile): ApiKeySource {
  if (text.startsWith('@')) {
    const path = text.slice(1);
    readApiKey({ kind: 'file', path }, readFile);
    return { kind: 'file', path };
  }
  return { kind: 'literal', value: usableKey(text, '--api-key') };
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

const keyInFile = (path: string, bytes: Uint8Array): string =>
  usableKey(Buffer.from(bytes).toString('utf8').trim(), `the API key file ${JSON.stringify(path)}`);

/** A key travels as a header value: visible ASCII, blanks only inside. */
function usableKey(key: string, what: string): string {
  if (key === '') throw new PrivatemodeError('config_invalid', `${what} is empty`);
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
