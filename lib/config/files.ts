/** Reads the files and directories that flags name: a salt, a manifest, the workspace. */
import { createReadStream, existsSync, mkdirSync, mkdtempSync, rmdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { fileUnreadable } from '../errors.ts';
import { invalid } from './values.ts';

/** The bytes of a file; throws what the file system throws. */
export type ReadFile = (path: string) => Uint8Array;

/** What `action` gives. Where it throws, throws what `refuse` makes of that. */
export function orRefuse<T>(action: () => T, refuse: (thrown: unknown) => Error): T {
  try {
    return action();
  } catch (thrown) {
    throw refuse(thrown);
  }
}

/** The bytes of a file, or undefined where it cannot be read. */
export function readIfThere(path: string, readFile: ReadFile): Uint8Array | undefined {
  try {
    return readFile(path);
  } catch {
    return undefined;
  }
}

/** The bytes of `what`, which lies at `path`. Throws config_invalid. */
export const readNamedFile = (what: string, path: string, readFile: ReadFile): Uint8Array =>
  orRefuse(
    () => readFile(path),
    (thrown) => fileUnreadable(what, path, thrown),
  );

const MIN_SALT_BYTES = 32;
/** Unicode characters. */
const MAX_SALT_CHARACTERS = 128;

/**
 * --prompt-cache-salt: `random` → undefined (one salt per start), `@file` → its content without surrounding white
 * space, anything else → itself. Throws config_invalid; the salt is never quoted.
 */
export function parseSalt(text: string, readFile: ReadFile): string | undefined {
  if (text === 'random') return undefined;
  // Node has replaced what was no UTF-8 on the command line by U+FFFD; two such salts could collapse into one.
  if (!text.startsWith('@')) return validSalt(text, !text.includes('\ufffd'), '--prompt-cache-salt');
  const path = text.slice(1);
  const what = `the salt file ${JSON.stringify(path)} of --prompt-cache-salt`;
  const bytes = readNamedFile(what, path, readFile);
  // A byte order mark stays, as in the reference: instances that share a salt must agree on it.
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
  throw invalid(`${what} contains ${shown}; a salt must not contain @, /, \\ or NUL`);
}

/** A manifest has about 6 KB. */
const MAX_MANIFEST_BYTES = 1024 * 1024;

/** Reads a manifest of the user's own, byte for byte. Throws config_invalid. */
export async function readManifestFile(path: string): Promise<Uint8Array> {
  const refuse = (why: string, cause?: unknown) =>
    invalid(`failed to read manifest file: ${path} ${why}`, cause);
  let manifest: Uint8Array;
  try {
    // Up to one byte more than allowed; what follows in an endless file is not read.
    manifest = new Uint8Array(await buffer(createReadStream(path, { end: MAX_MANIFEST_BYTES })));
  } catch (cause) {
    throw refuse(`cannot be read (${codeOf(cause)})`, cause);
  }
  if (manifest.length === 0) throw refuse('is empty');
  if (manifest.length > MAX_MANIFEST_BYTES) throw refuse(`exceeds ${MAX_MANIFEST_BYTES} bytes`);
  return manifest;
}

/**
 * --manifest-path: refuses a file that is no manifest at all. The session judges whether it is a good one. `flag` is what the setting is
 * called. Throws config_invalid.
 */
export function requireManifest(path: string, readFile: ReadFile, flag: string): void {
  const file = `manifest file ${JSON.stringify(path)} of ${flag}`;
  const reason = whyNoManifest(readNamedFile(file, path, readFile));
  if (reason !== undefined) throw invalid(`the ${file} ${reason}`);
}

/**
 * Why the content of a file is surely no manifest, as the end of a sentence about the file; undefined where it may be one.
 * Without this, an error page that was saved in the place of a manifest would look like a deployment that runs under another.
 */
export function whyNoManifest(bytes: Uint8Array): string | undefined {
  const text = Buffer.from(bytes).toString('utf8');
  if (text.trim() === '') return 'is empty: not a manifest';
  if (text.startsWith('\ufeff'))
    return 'begins with a byte order mark, which the manifest of the service does not have; save it byte for byte as it was sent';
  if (/^\s*</.test(text))
    return 'is an HTML page, not a manifest; most likely an error page was saved in its place';
  try {
    JSON.parse(text);
    if (/^\s*\{/.test(text)) return undefined;
  } catch {} // what cannot be parsed is no object either
  return 'is not a JSON object: not a manifest';
}

/**
 * --workspace: makes the directory and refuses one that cannot be written, in which every attestation would fail at its last
 * step. One that is read-only but holds a log may do: a manifest logged already needs no new line. Throws config_invalid.
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
  orRefuse(() => makeDirectory(workspace), refuse('created'));
  if (existsSync(join(workspace, 'manifests', 'log.txt'))) return;
  // A file system may refuse what the permissions allow, as /proc does to root.
  orRefuse(() => rmdirSync(mkdtempSync(join(workspace, '.write-check-'))), refuse('written'));
}

/**
 * As `mkdir -p`, with `mode` for what it makes. Node's own `recursive` never returns where a directory exists and mkdir in
 * it says ENOENT, as below /proc. Throws what the file system throws; EEXIST where `path` is no directory.
 */
export function makeDirectory(path: string, mode?: number): void {
  const whole = resolve(path);
  if (isDirectory(whole)) return;
  const parent = dirname(whole);
  if (parent !== whole && !existsSync(parent)) makeDirectory(parent, mode);
  try {
    mkdirSync(whole, { mode });
  } catch (thrown) {
    if (codeOf(thrown) !== 'EEXIST' || !isDirectory(whole)) throw thrown;
  }
}

const isDirectory = (path: string): boolean =>
  statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

/** Of an error of the file system. */
export const codeOf = (thrown: unknown): string => (thrown as NodeJS.ErrnoException).code ?? 'unknown cause';
