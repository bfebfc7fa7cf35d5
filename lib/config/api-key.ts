/** The API key of the proxy. --api-key holds the key, or names with `@` a file that is read and followed. */
import { existsSync } from 'node:fs';
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable, readNamed } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmall, readSmallSync, watchFiles } from '../watch-files.ts';
import { invalid, type ReadFile } from './values.ts';

/** The API key that the operator configured, as read at the start. */
export interface ApiKey {
  readonly key: string;
  /** The file that contains the key, or undefined if the setting itself contains the key. */
  readonly path: string | undefined;
  /** The flag or the environment variable that set the key. */
  readonly setting: string;
}

/**
 * Parses --api-key: the verbatim key, or `@file`, which names a readable file with a key. Throws
 * config_invalid, also if the key is the name of an existing file. No message quotes the key.
 */
export function parseApiKey(setting: string, text: string, files: ReadFile = readSmallSync): ApiKey {
  if (text.startsWith('@')) {
    const path = text.slice(1);
    return { key: keyIn(path, readNamed(`${keyFile(path)} of ${setting}`, path, files)), path, setting };
  }
  if (existsSync(text))
    throw invalid(`${setting} is the name of an existing file, not a key: write @ in front of it`);
  return { key: usableKey(text, setting), path: undefined, setting };
}

/** Reads the key in a file. `whose` names the owner in messages. Throws config_invalid, without the key. */
export async function readKeyFile(path: string, whose: string): Promise<string> {
  const bytes = await readSmall(path).catch((thrown: unknown) => {
    throw fileUnreadable(`${keyFile(path)} of ${whose}`, thrown);
  });
  return keyIn(path, bytes);
}

export type ConfiguredKey = ReturnType<typeof configuredKey>;

/** The configured key. `value` returns the current key, which follows its file once `watch` was called. */
export function configuredKey(configured: ApiKey | undefined) {
  const { key, path, setting = '' } = configured ?? {};
  let value = key;
  let readAt = new Date();
  /** Tells only the operator where the key comes from. The text never contains the key itself. */
  const origin = (): string =>
    path === undefined
      ? `${setting}, as it stands there`
      : `${setting} @${path}, read at ${readAt.toISOString()}`;
  return {
    value: () => value,
    origin,
    /** Adds the origin of the key to the message of api_key_rejected. Returns every other error unchanged. */
    named(error: PrivatemodeError): PrivatemodeError {
      const { code, message, remedy } = error;
      if (code !== 'api_key_rejected' || value === undefined) return error;
      return new PrivatemodeError(code, `${message} (the key of ${origin()})`, { cause: error, remedy });
    },
    /** Follows the key file, if there is one. An invalid key file leaves the old key in force. */
    watch(follower: Follower<string>): FileWatch | undefined {
      if (key === undefined || path === undefined) return undefined;
      return watchFiles(key, () => readKeyFile(path, setting), follower.clock.times.keyFileLook, {
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
 * Removes white space around the key, and the byte order mark that some editors add. A UTF-16 byte order
 * mark, which PowerShell writes, selects UTF-16.
 */
function keyIn(path: string, bytes: Uint8Array): string {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf16le' : 'utf8';
  const what = `the ${keyFile(path)}`;
  const key = usableKey(Buffer.from(bytes).toString(encoding).trim(), what);
  if (/\s/.test(key)) throw invalid(`${what} ${ALONE}`);
  return key;
}

const ALONE = 'holds quotes, "Bearer", a name, a variable, a flag or other words: give the key alone';
/** A key may end in `=`, so the pattern for NAME=KEY needs another character after the equals sign. */
const FOREIGN =
  /^["'`{[<]|["'`]$|^bearer(?:\s|$)|^(?:export\s+)?[a-z_]\w*\s*=\s*[^=\s]|[\r\n]|^\$[a-z_{]|^--[a-z]/i;

/** Checks a key and returns it. Keys are header values: visible ASCII, with spaces only inside. */
function usableKey(key: string, what: string): string {
  if (key === '') throw invalid(`${what} is empty: it must hold the key`);
  if (FOREIGN.test(key)) throw invalid(`${what} ${ALONE}`);
  if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(key))
    throw invalid(`${what} contains characters that an API key cannot have (one key, plain ASCII)`);
  return key;
}
