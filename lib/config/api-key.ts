/**
 * Where the API key of the proxy comes from: --api-key holds the key itself, or names a file with `@`. This
 * file checks the key, reads it, and watches the file for changes.
 */
import { existsSync } from 'node:fs';
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable, readNamed } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmall, readSmallSync, watchFiles } from '../watch-files.ts';
import { type ReadFile, readIfThere } from './files.ts';
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
  if (text === '@')
    throw invalid(`${flag} has no file name after the @: write @FILE, as in ${flag} @key.txt`);
  if (text.startsWith('@')) {
    const source = { kind: 'file', path: text.slice(1) } as const;
    readApiKey(source, readFile, flag);
    return source;
  }
  const value = usableKey(text, flag);
  if (readIfThere(text, readFile) === undefined) return { kind: 'literal', value };
  throw invalid(
    `${flag} is the name of an existing file, not a key: write @ in front of it, as in --api-key @key.txt`,
  );
}

/**
 * The key of a source; reads the file if there is one. `flag`: the name of the setting, for messages. Throws
 * config_invalid; the message quotes no part of the key.
 */
export function readApiKey(
  source: ApiKeySource,
  readFile: ReadFile = readSmallSync,
  flag = '--api-key',
): string {
  if (source.kind === 'literal') return source.value;
  const what = `${keyFile(source.path)} of ${flag}`;
  return keyInFile(source.path, readNamed(what, source.path, readFile));
}

/**
 * The key in a file that is followed. `of`: whose key it is, for messages. Throws config_invalid; the message
 * quotes no part of the key.
 */
export async function readKeyFile(path: string, of?: string): Promise<string> {
  const what = of === undefined ? keyFile(path) : `${keyFile(path)} of ${of}`;
  const bytes = await readSmall(path).catch((thrown: unknown) => {
    throw fileUnreadable(what, thrown);
  });
  return keyInFile(path, bytes);
}

/**
 * Says where the key comes from, for messages about a key that the service does not accept; never the key
 * itself. `setting`: the flag or variable that set it. `readAt`: when its file was read. `exists`: tells
 * whether there is a file of this name.
 */
export function keyOrigin(
  source: ApiKeySource,
  setting: string,
  { readAt, exists }: { readonly readAt: Date; readonly exists: (path: string) => boolean },
): string {
  if (source.kind === 'file') return `${setting} @${source.path}, read at ${readAt.toISOString()}`;
  const literal = `${setting}, as it stands there`;
  return exists(source.value)
    ? `${literal}, which is the name of a file: write @ in front of it to use the key in the file`
    : literal;
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
  const origin = (): string | undefined =>
    source && keyOrigin(source, apiKeySetting, { readAt, exists: existsSync });
  return {
    value: () => value,
    /** Where the key comes from, for the operator only. */
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
  if (key.includes(' ')) throw invalid(`${what} contains more than one word: it must contain only the key`);
  return key;
}

/**
 * Text that people put around a key, and the message for each. A key may end in `=`; the pattern for NAME=KEY
 * therefore needs a character other than `=` or white space after the equals sign.
 */
const WRAPPED: readonly (readonly [pattern: RegExp, problem: string])[] = [
  [/^(["'`]).*\1$/, 'has quotes around the key: leave them out'],
  [/^bearer(?:\s|$)/i, 'begins with "Bearer", which is no part of the key: leave it out'],
  [/^[{[]/, 'holds JSON: leave only the key, without braces and quotes'],
  [/[\r\n]/, 'has more than one line: leave only the key'],
  [/^</, 'holds a page or markup, not a key'],
  [/^\$[A-Za-z_{]/, 'begins with $: the shell did not replace the variable; use double quotes'],
  [/^--[a-z]+(?:-[a-z]+)*(?:=|$)/, 'holds the next flag: the key itself is missing'],
  [/^(?:export\s+)?[A-Za-z_]\w*\s*=\s*[^=\s]/, 'holds NAME=KEY: leave out the name and the equals sign'],
  [/^["'`]|["'`]$/, 'has a quote at one end: leave it out'],
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
