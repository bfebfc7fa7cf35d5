/** Reads the files and directories that flags name: a salt, a manifest, the workspace. */
import { createReadStream, existsSync, mkdirSync, mkdtempSync, rmdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { parseManifest, whyNoManifest } from '../attestation/manifest.ts';
import { makeDirectorySync } from '../files/durable-file.ts';
import { fileUnreadable, readNamed, reasonOf } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmall, watchFiles } from '../watch-files.ts';
import { invalid } from './values.ts';

/** Reads the bytes of a file. Throws the error of the file system. */
export type ReadFile = (path: string) => Uint8Array;

/**
 * Runs `action` and returns its result. If it throws, `refuse` turns the thrown value into the error to throw
 * instead.
 */
export function orRefuse<T>(action: () => T, refuse: (thrown: unknown) => Error): T {
  try {
    return action();
  } catch (thrown) {
    throw refuse(thrown);
  }
}

/** The bytes of a file, or undefined if it cannot be read. */
export function readIfThere(path: string, readFile: ReadFile): Uint8Array | undefined {
  try {
    return readFile(path);
  } catch {
    return undefined;
  }
}

const MIN_SALT_BYTES = 32;
/** Unicode characters. */
const MAX_SALT_CHARACTERS = 128;

/**
 * Parses --prompt-cache-salt. `random` → undefined (one salt per start), `@file` → the content of the file
 * without surrounding white space, anything else → the text itself. Throws config_invalid; no message quotes
 * the salt.
 */
export function parseSalt(text: string, readFile: ReadFile, flag: string): string | undefined {
  if (text === 'random') return undefined;
  // Node replaces bytes of the command line that are not UTF-8 by U+FFFD; two different salts could become
  // equal.
  if (!text.startsWith('@')) return validSalt(text, !text.includes('\ufffd'), flag);
  const path = text.slice(1);
  const what = `the salt file ${JSON.stringify(path)} of ${flag}`;
  const bytes = readNamed(what, path, readFile);
  // Keep a byte order mark, as the reference does: instances that share a salt must agree on it.
  const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const content = orRefuse(
    () => utf8.decode(bytes),
    () => invalid(`${what} is not valid UTF-8`),
  );
  return validSalt(content.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, ''), true, what);
}

function validSalt(salt: string, isUtf8: boolean, what: string): string {
  if (!isUtf8 || !salt.isWellFormed()) throw invalid(`${what} is not valid UTF-8`);
  const [bytes, characters] = [Buffer.byteLength(salt), [...salt].length];
  const enough = `at least ${MIN_SALT_BYTES} (openssl rand -hex 32 makes one)`;
  if (bytes < MIN_SALT_BYTES) throw invalid(`${what} has ${bytes} bytes; a salt needs ${enough}`);
  if (characters > MAX_SALT_CHARACTERS)
    throw invalid(`${what} has ${characters} characters; a salt has at most ${MAX_SALT_CHARACTERS}`);
  const forbidden = /[@/\\\0]/.exec(salt)?.[0];
  if (forbidden === undefined) return salt;
  const shown = forbidden === '\0' ? 'a NUL' : `"${forbidden}"`;
  throw invalid(
    `${what} contains ${shown}; a salt has none of @, /, \\ and NUL (openssl rand -hex 32 makes one)`,
  );
}

/** A manifest has about 6 KB. */
const MAX_MANIFEST_BYTES = 1024 * 1024;

/** Reads a manifest file that the user supplies, byte for byte. Throws config_invalid. */
export async function readManifestFile(path: string): Promise<Uint8Array> {
  const refuse = (why: string, cause?: unknown) =>
    invalid(`failed to read manifest file: ${path} ${why}`, cause);
  let manifest: Uint8Array;
  try {
    // Read at most one byte more than allowed, so that an endless file ends too.
    manifest = new Uint8Array(await buffer(createReadStream(path, { end: MAX_MANIFEST_BYTES })));
  } catch (cause) {
    throw refuse(`cannot be read: ${reasonOf(cause)}`, cause);
  }
  if (manifest.length === 0) throw refuse('is empty');
  if (manifest.length > MAX_MANIFEST_BYTES) throw refuse(`exceeds ${MAX_MANIFEST_BYTES} bytes`);
  return manifest;
}

/**
 * The content of the file of --manifest-path, which is followed: `current` changes with the file once `watch`
 * was called. A file that holds no valid manifest leaves the old one.
 */
export async function givenManifest(path: string) {
  const first = await readManifestFile(path);
  let current = first;
  const read = async (): Promise<Uint8Array> => {
    const bytes = await readSmall(path).catch((thrown: unknown) => {
      throw fileUnreadable(`the file ${JSON.stringify(path)} of --manifest-path`, thrown);
    });
    const manifest = new Uint8Array(bytes);
    parseManifest(manifest);
    return manifest;
  };
  return {
    current: async (): Promise<Uint8Array> => current,
    watch: (follower: Omit<Follower<Uint8Array>, 'changed'> & { readonly changed: () => void }): FileWatch =>
      watchFiles(first, read, follower.clock.times.manifestFileLook, {
        ...follower,
        changed(next) {
          current = next;
          follower.changed();
        },
      }),
  };
}

/**
 * Checks the file of --manifest-path: refuses one that is no manifest at all. The session judges later
 * whether the manifest is a good one. `flag`: the name of the setting, for messages. Throws config_invalid.
 */
export function requireManifest(path: string, readFile: ReadFile, flag: string): void {
  const file = `manifest file ${JSON.stringify(path)} of ${flag}`;
  const reason = whyNoManifestFile(readNamed(file, path, readFile));
  if (reason !== undefined) throw invalid(`the ${file} ${reason}`);
}

/**
 * Says why the content of a file cannot be a manifest, and what to do, as the end of a sentence about the
 * file; undefined if it may be one.
 */
export function whyNoManifestFile(bytes: Uint8Array): string | undefined {
  const reason = whyNoManifest(bytes);
  return reason && `${reason}; fetch it again, and save it byte for byte as it was sent`;
}

/**
 * Creates the directory of --workspace and refuses one that cannot be written: every attestation would fail
 * there at its last step. A read-only directory that already holds a manifest log is accepted, because a
 * manifest that is logged already needs no new line. Throws config_invalid.
 */
export function prepareWorkspace(workspace: string): void {
  const name = JSON.stringify(workspace);
  const refuse = (action: string) => (thrown: unknown) => {
    const code = codeOf(thrown);
    const problem =
      code === 'EEXIST'
        ? `${name} is not a directory`
        : `the directory ${name} cannot be ${action} (${code})`;
    return invalid(`--workspace: ${problem}; name a directory that can be written`, thrown);
  };
  orRefuse(() => makeWorkspace(workspace), refuse('created'));
  if (existsSync(join(workspace, 'manifests', 'log.txt'))) return;
  // Try to write: a file system may refuse what the permissions allow, as /proc does even for root.
  orRefuse(() => rmdirSync(mkdtempSync(join(workspace, '.write-check-'))), refuse('written'));
}

/** Makes the outermost directory by itself: where that fails, as below /proc, `recursive` never returns. */
function makeWorkspace(workspace: string): void {
  let outermost = resolve(workspace);
  while (!existsSync(dirname(outermost))) outermost = dirname(outermost);
  if (!existsSync(outermost)) mkdirSync(outermost);
  makeDirectorySync(workspace);
}

/** The code of a file-system error. */
const codeOf = (thrown: unknown): string => (thrown as NodeJS.ErrnoException).code ?? 'unknown cause';
