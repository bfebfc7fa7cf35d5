/** Reads the files and directories that flags name: a salt, a manifest, the workspace. */
import { existsSync, mkdirSync, mkdtempSync, rmdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseManifest, whyNoManifest } from '../attestation/manifest.ts';
import { makeDirectorySync } from '../files/durable-file.ts';
import { fileUnreadable, readNamed } from '../files/path-refusal.ts';
import { type FileWatch, type Follower, readSmall, watchFiles } from '../watch-files.ts';
import { invalid } from './values.ts';

/** Reads the bytes of a file. Throws the error of the file system. */
export type ReadFile = (path: string) => Uint8Array;

/** The result of `action`; what it throws becomes the error that `refuse` makes of it. */
export function orRefuse<T>(action: () => T, refuse: (thrown: unknown) => Error): T {
  try {
    return action();
  } catch (thrown) {
    throw refuse(thrown);
  }
}

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
  // With a byte order mark, as in the reference: instances that share a salt must agree on it.
  const content = Buffer.from(readNamed(what, path, readFile));
  const isUtf8 = Buffer.from(content.toString()).equals(content);
  return validSalt(content.toString().replace(/^\p{White_Space}+|\p{White_Space}+$/gu, ''), isUtf8, what);
}

function validSalt(salt: string, isUtf8: boolean, what: string): string {
  const [bytes, characters] = [Buffer.byteLength(salt), [...salt].length];
  const problems: readonly (readonly [holds: boolean, problem: string])[] = [
    [!isUtf8 || !salt.isWellFormed(), 'is not valid UTF-8'],
    [bytes < 32, `has ${bytes} bytes; a salt needs at least 32`],
    [characters > 128, `has ${characters} characters; a salt has at most 128`],
    [/[@/\\\0]/.test(salt), 'contains @, /, \\ or NUL'],
  ];
  const [, problem] = problems.find(([holds]) => holds) ?? [];
  if (problem === undefined) return salt;
  throw invalid(`${what} ${problem} (openssl rand -hex 32 makes one)`);
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

/** Why these bytes cannot be a manifest, and what to do, as the end of a sentence; undefined if they may. */
export function whyNoManifestFile(bytes: Uint8Array): string | undefined {
  const reason = whyNoManifest(bytes);
  return reason && `${reason}; fetch it again, and save it byte for byte as it was sent`;
}

/**
 * The content of the file of --manifest-path, which is followed: `current` changes with the file once `watch`
 * was called. A file that holds no valid manifest leaves the old one. Throws config_invalid.
 */
export async function givenManifest(path: string) {
  const read = async (): Promise<Uint8Array> => {
    const bytes = await readSmall(path).catch((thrown: unknown) => {
      throw fileUnreadable(`the file ${JSON.stringify(path)} of --manifest-path`, thrown);
    });
    return new Uint8Array(bytes);
  };
  const valid = async (): Promise<Uint8Array> => {
    const manifest = await read();
    parseManifest(manifest);
    return manifest;
  };
  const first = await read();
  let current = first;
  return {
    current: async (): Promise<Uint8Array> => current,
    watch: (follower: Omit<Follower<Uint8Array>, 'changed'> & { readonly changed: () => void }): FileWatch =>
      watchFiles(first, valid, follower.clock.times.manifestFileLook, {
        ...follower,
        changed(next) {
          current = next;
          follower.changed();
        },
      }),
  };
}

/**
 * Creates the directory of --workspace and refuses one that cannot be written: every attestation would fail
 * there at its last step. A read-only directory that already holds a manifest log is accepted, because a
 * manifest that is logged already needs no new line. Throws config_invalid.
 */
export function prepareWorkspace(workspace: string): void {
  const name = JSON.stringify(workspace);
  const refuse = (action: string) => (thrown: unknown) => {
    const { code = 'unknown cause' } = thrown as NodeJS.ErrnoException;
    const denied = `the directory ${name} cannot be ${action} (${code})`;
    const problem = code === 'EEXIST' ? `${name} is not a directory` : denied;
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
