/** Exchanges that are kept as directories: one comes into being whole, or not at all. */
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { makeDirectory, replace, temporaryBeside, unless } from './durable-file.ts';
import { readRegular } from './own-files.ts';

/** A name for what is not whole yet, or no longer. Only a crash leaves a file or directory of such a name. */
export const TEMPORARY = /^\.[0-9a-f-]{36}\.tmp$/;

/**
 * Stores files (name → content) in an existing directory, in their order, each whole or not at all. A name
 * may begin with a folder, which is created, as in `roots/ARK.pem`.
 */
export async function writeFiles(
  directory: string,
  files: Readonly<Record<string, Uint8Array | string>>,
  mode: number,
): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    const path = join(directory, name);
    if (dirname(name) !== '.') await makeDirectory(dirname(path), 0o700);
    await replace(path, content, mode);
  }
}

/**
 * Stores a directory with these files under a name that nothing has yet; it comes into being whole. Resolves
 * with false if the name is taken.
 */
export async function publishDirectory(
  path: string,
  files: Readonly<Record<string, Uint8Array | string>>,
  mode: number,
): Promise<boolean> {
  const temporary = temporaryBeside(path);
  try {
    await mkdir(temporary, { mode: 0o700 });
    await writeFiles(temporary, files, mode);
    const moved = rename(temporary, path).then(() => true);
    return (await unless('EEXIST', unless('ENOTEMPTY', moved))) ?? false;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

/** Removes a directory. A crash leaves no part of it under its name, but the rest under a temporary one. */
export async function removeDirectory(path: string): Promise<void> {
  const temporary = temporaryBeside(path);
  await unless('ENOENT', rename(path, temporary)); // another process may have removed it meanwhile
  await rm(temporary, { recursive: true, force: true });
}

/**
 * The bytes of all files below a directory, by their paths relative to it. Throws EFBIG if a file is longer
 * than `most` bytes.
 */
export async function readTree(directory: string, most: number): Promise<Record<string, Uint8Array>> {
  const files: Record<string, Uint8Array> = {};
  for (const entry of await readdir(directory, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isDirectory()) files[relative(directory, path)] = await readRegular(path, most);
  }
  return files;
}
