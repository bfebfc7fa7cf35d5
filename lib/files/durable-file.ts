/** Stores files so that they survive a crash: each comes into being whole, or not at all. */
import { randomUUID } from 'node:crypto';
import { link, mkdir, open, rename, rm, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { systemClock } from '../clock.ts';
import { makeDirectory } from './make-directory.ts';

const WITHOUT_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/** A name for what is not whole yet, or no longer. Only a crash leaves a file or directory of such a name. */
export const TEMPORARY = /^\.[0-9a-f-]{36}\.tmp$/;

const temporaryBeside = (path: string): string => join(dirname(path), `.${randomUUID()}.tmp`);

/**
 * Stores a file under a name that no file has yet. Resolves with false, and stores nothing, if the name is
 * taken. If two processes try at once, one wins (link fails on an existing name). File systems without hard
 * links get a copy instead.
 */
export async function publish(path: string, content: Uint8Array | string, mode: number): Promise<boolean> {
  const temporary = temporaryBeside(path);
  try {
    await writeNew(temporary, content, mode);
    const named = link(temporary, path).catch((error: NodeJS.ErrnoException) => {
      if (!WITHOUT_LINKS.has(error.code)) throw error;
      return writeNew(path, content, mode);
    });
    const won = await unless(
      'EEXIST',
      named.then(() => true),
    );
    return won ?? false;
  } finally {
    await unlink(temporary).catch(() => {});
  }
}

/**
 * Stores a file, in the place of the one that has the name, if any. A link of that name is replaced, not
 * followed.
 */
export async function replace(path: string, content: Uint8Array | string, mode: number): Promise<void> {
  const temporary = temporaryBeside(path);
  try {
    await writeNew(temporary, content, mode);
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => {});
    throw error;
  }
}

/** Writes a new file, through to the disk. Throws EEXIST if the file is there already. */
export async function writeNew(path: string, content: Uint8Array | string, mode: number): Promise<void> {
  await using file = await open(path, 'wx', mode);
  await file.writeFile(content);
  await file.sync();
}

/** Makes new names in the directory survive a power cut, if the file system can do that (Windows cannot). */
export async function syncDirectory(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  await using directory = await open(path, 'r');
  await directory.sync().catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EINVAL' && error.code !== 'ENOTSUP') throw error;
  });
}

/** The result of `work`, or undefined if it fails with this code; any other failure is thrown. */
export const unless = <T>(code: string, work: Promise<T>): Promise<T | undefined> =>
  work.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== code) throw error;
    return undefined;
  });

/**
 * The result of work on the disk. Throws ETIMEDOUT if it takes longer than 10 s, because a disk behind a
 * network may neither answer nor fail; the work itself goes on.
 */
export async function inTime<T>(work: Promise<T>, clock = systemClock): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const late = Object.assign(new Error('the disk does not answer in time'), { code: 'ETIMEDOUT' });
  const answered = clock.after(clock.times.diskPatience, () => reject(late), 'waiting');
  try {
    return await Promise.race([work, promise]);
  } finally {
    answered();
  }
}

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
