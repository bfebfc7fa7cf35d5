/** Reads the files and directories that flags name: a salt, a store URL, a manifest, the workspace. */
import { isUtf8 } from 'node:buffer';
import { existsSync, mkdirSync, mkdtempSync, rmdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parseManifest, whyNoManifest } from '../attestation/manifest.ts';
import { fileUnreadable, readNamed, reasonOf } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmall, watchFiles } from '../watch-files.ts';
import { invalid, type ReadFile } from './values.ts';

/** Returns the result of `action`. If `action` throws, throws the error that `refuse` makes. */
export function orRefuse<T>(action: () => T, refuse: (thrown: unknown) => Error): T {
  try {
    return action();
  } catch (thrown) {
    throw refuse(thrown);
  }
}

/** The bytes of the file that `text` names as @FILE, and the name of the file for messages. */
function fileOf(flag: string, kind: string, text: string, files?: ReadFile) {
  const path = text.slice(1);
  const name = `the ${kind} file ${JSON.stringify(path)} of ${flag}`;
  return { name, bytes: Buffer.from(readNamed(name, path, files)) };
}

/**
 * Parses --prompt-cache-salt. `random` → undefined (one salt per start), `@file` → the content of the file
 * without surrounding white space, anything else → the text itself. No message quotes the salt.
 */
export function parseSalt(flag: string, text: string, files?: ReadFile): string | undefined {
  if (text === 'random') return undefined;
  // Node replaces bytes of the command line that are not UTF-8 by U+FFFD, so two different salts could become
  // equal.
  if (!text.startsWith('@')) return validSalt(text, text.isWellFormed() && !text.includes('\ufffd'), flag);
  const { name, bytes } = fileOf(flag, 'salt', text, files);
  // Like the reference proxy, keeps a byte order mark: instances that share a file need the same salt.
  const salt = bytes.toString().replace(/^\p{White_Space}+|\p{White_Space}+$/gu, '');
  return validSalt(salt, isUtf8(bytes), name);
}

function validSalt(salt: string, isUtf8: boolean, what: string): string {
  const [bytes, characters] = [Buffer.byteLength(salt), [...salt].length];
  const problems: readonly (readonly [holds: boolean, problem: string])[] = [
    [!isUtf8, 'is not valid UTF-8'],
    [bytes < 32, `has ${bytes} bytes; a salt needs at least 32`],
    [characters > 128, `has ${characters} characters; a salt has at most 128`],
    [/[@/\\\0]/.test(salt), 'contains @, /, \\ or NUL'],
  ];
  const [, problem] = problems.find(([holds]) => holds) ?? [];
  if (problem === undefined) return salt;
  throw invalid(`${what} ${problem} (openssl rand -hex 32 makes one)`);
}

/**
 * The URL of the store of --limits-store: the text itself, or the content of the file that it names as @FILE.
 * No message quotes any part of the URL, because the URL may contain a password.
 */
export function parseStoreUrl(flag: string, text: string, files?: ReadFile): string {
  const file = text.startsWith('@') ? fileOf(flag, 'URL', text, files) : undefined;
  const url = file?.bytes.toString().trim() ?? text;
  const form = 'redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], or rediss://…';
  const escapes = 'in user and password write %25 %40 %3A %2F %3F %23 for % @ : / ? #';
  const refusal = () => invalid(`${file?.name ?? flag} wants ${form}; ${escapes}`);
  orRefuse(() => requireStore(new URL(url)), refusal);
  return url;
}

/** Throws an error of any kind unless the URL is that of a Redis store. */
function requireStore({ protocol, hostname, port, pathname, search, hash, username, password }: URL): void {
  decodeURIComponent(username + password); // throws for a % that begins no escape
  const isStore =
    /^rediss?:$/.test(protocol) &&
    /^(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)$/i.test(hostname) &&
    /^(?:\/\d{0,4})?$/.test(pathname + search + hash) &&
    port !== '0';
  if (!isStore) throw new Error('it is another kind of URL');
}

/**
 * The manifest in the file of --manifest-path. `current` returns the manifest, and follows the file once
 * `watch` was called. While the file has no valid manifest, the last valid manifest is used. Throws
 * config_invalid, manifest_unsupported and manifest_invalid.
 */
export async function givenManifest(path: string) {
  const what = `the file ${JSON.stringify(path)} of --manifest-path`;
  const read = async (): Promise<Uint8Array> => {
    const bytes = await readSmall(path).catch((thrown: unknown) => {
      throw fileUnreadable(what, thrown);
    });
    const reason = whyNoManifest(bytes);
    if (reason !== undefined) throw invalid(`${what} ${reason}`);
    parseManifest(bytes);
    return new Uint8Array(bytes);
  };
  const first = await read();
  let current = first;
  return {
    current: async (): Promise<Uint8Array> => current,
    watch: (follower: Follower<Uint8Array>): FileWatch =>
      watchFiles(first, read, follower.clock.times.manifestFileLook, {
        ...follower,
        changed(next) {
          current = next;
          follower.changed(next);
        },
      }),
  };
}

/**
 * Creates the directory of --workspace. Refuses a directory that cannot be written, because every attestation
 * would fail at its last step. A read-only directory that already holds a manifest log is accepted, because a
 * manifest that is already logged needs no new line. Throws config_invalid.
 */
export function prepareWorkspace(workspace: string): void {
  const refuse = (action: string) => (thrown: unknown) => {
    const what = `the directory ${JSON.stringify(workspace)} of --workspace cannot be ${action}`;
    return invalid(`${what}: ${reasonOf(thrown)}`, thrown);
  };
  orRefuse(() => makeDirectories(workspace), refuse('created'));
  if (existsSync(join(workspace, 'manifests', 'log.txt'))) return;
  // Tries to write, because a file system may refuse what permissions allow. Thus /proc refuses even root.
  orRefuse(() => rmdirSync(mkdtempSync(join(workspace, '.write-check-'))), refuse('written'));
}

/** Makes a directory and its missing parents one by one, because `recursive` never returns below /proc. */
function makeDirectories(path: string): void {
  if (existsSync(path)) return;
  makeDirectories(dirname(path));
  mkdirSync(path);
}
