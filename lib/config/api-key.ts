/**
 * Where the API key of the proxy comes from: --api-key holds the key itself, or names a file with `@`. This
 * file checks the key, reads it, and follows the file.
 */
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable, readNamed } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmall, readSmallSync, watchFiles } from '../watch-files.ts';
import type { ReadFile } from './files.ts';
import { invalid } from './values.ts';

export type ApiKeySource =
  | { readonly kind: 'literal'; readonly value: string }
  | { readonly kind: 'file'; readonly path: string };

/**
 * Parses --api-key: either the key itself, taken verbatim, or `@file`, which must be readable and hold a key.
 * `flag`: the name of the setting, for messages. Throws config_invalid, also for a literal that is the name
 * of an existing file.
 */
export function parseApiKey(text: string, readFile: ReadFile, flag: string): ApiKeySource {
  if (text.startsWith('@')) {
    const source = { kind: 'file', path: text.slice(1) } as const;
    if (source.path === '') throw invalid(`${flag} has no file name after the @: write @FILE`);
    readApiKey(source, readFile, flag);
    return source;
  }
  const value = usableKey(text, flag);
  try {
    readFile(text);
  } catch {
    return { kind: 'literal', value };
  }
  throw invalid(`${flag} is the name of an existing file, not a key: write @ in front of it`);
}

/** The key of a source, read from its file if it has one. Throws config_invalid, without the key. */
export function readApiKey(
  source: ApiKeySource,
  readFile: ReadFile = readSmallSync,
  flag = '--api-key',
): string {
  if (source.kind === 'literal') return source.value;
  const { path } = source;
  return keyInFile(path, readNamed(`${keyFile(path)} of ${flag}`, path, readFile));
}

/** The key in a file that is followed. `of`: whose key it is. Throws config_invalid, without the key. */
export async function readKeyFile(path: string, of?: string): Promise<string> {
  const bytes = await readSmall(path).catch((thrown: unknown) => {
    throw fileUnreadable(`${keyFile(path)}${of === undefined ? '' : ` of ${of}`}`, thrown);
  });
  return keyInFile(path, bytes);
}

export type ConfiguredKey = ReturnType<typeof configuredKey>;

/**
 * The key that the operator configured. `value` gives the current one, which changes with its file once
 * `watch` was called. Throws config_invalid.
 */
export function configuredKey({
  apiKey: source,
  apiKeySetting,
}: {
  readonly apiKey: ApiKeySource | undefined;
  readonly apiKeySetting: string;
}) {
  const first = source && readApiKey(source);
  let value = first;
  let readAt = new Date();
  /** Where the key comes from, for the operator only; never the key itself. */
  function origin(): string | undefined {
    if (source?.kind !== 'file') return source && `${apiKeySetting}, as it stands there`;
    return `${apiKeySetting} @${source.path}, read at ${readAt.toISOString()}`;
  }
  return {
    value: () => value,
    origin,
    /** Adds the origin of the key to the message of api_key_rejected; returns every other error unchanged. */
    named(error: PrivatemodeError): PrivatemodeError {
      const { code, message, remedy } = error;
      if (code !== 'api_key_rejected' || value === undefined) return error;
      return new PrivatemodeError(code, `${message} (the key of ${origin()})`, { cause: error, remedy });
    },
    /** Follows the file of the key; undefined if the key has none. A bad file leaves the old key. */
    watch(follower: Follower<string>): FileWatch | undefined {
      if (source?.kind !== 'file' || first === undefined) return undefined;
      return watchFiles(first, () => readKeyFile(source.path), follower.clock.times.keyFileLook, {
        ...follower,
        changed(next) {
          value = next;
          readAt = new Date();
          follower.changed(next);
        },
      });
    },
  };
}

const keyFile = (path: string): string => `API key file ${JSON.stringify(path)}`;

/**
 * Removes white space around the key and a byte order mark, which editors add. A UTF-16 byte order mark
 * selects UTF-16, which PowerShell writes.
 */
function keyInFile(path: string, bytes: Uint8Array): string {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf16le' : 'utf8';
  const what = `the ${keyFile(path)}`;
  const key = usableKey(Buffer.from(bytes).toString(encoding).trim(), what);
  if (/\s/.test(key)) throw invalid(`${what} contains more than one word: it must contain only the key`);
  return key;
}

/**
 * What people put around a key, or in its place. A key may end in `=`; the pattern for NAME=KEY therefore
 * needs another character after the equals sign.
 */
const WRAPPED: readonly (readonly [pattern: RegExp, problem: string])[] = [
  [/^["'`]|["'`]$/, 'has a quote at its beginning or end: leave it out'],
  [/^bearer(?:\s|$)/i, 'begins with "Bearer", which is no part of the key: leave it out'],
  [/^(?:export\s+)?[A-Za-z_]\w*\s*=\s*[^=\s]|^[{[<]|[\r\n]/, 'holds more than the key: leave only the key'],
  [/^\$[A-Za-z_{]|^--[a-z]/, 'holds a variable or a flag in place of the key'],
];

/** Checks a key and returns it. A key travels as a header value: visible ASCII, with spaces only inside. */
function usableKey(key: string, what: string): string {
  if (key === '') throw invalid(`${what} is empty: it must hold the key`);
  const wrapped = WRAPPED.find(([pattern]) => pattern.test(key));
  if (wrapped !== undefined) throw invalid(`${what} ${wrapped[1]}`);
  if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key))
    throw invalid(`${what} contains characters that an API key cannot have (one key, plain ASCII)`);
  return key;
}
