/** Files that survive a crash: they come into being whole, or not at all. */
import { randomUUID } from 'node:crypto';
import { link, open, rename, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const WITHOUT_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/**
 * Stores a file under a name that nobody has; resolves with false, and stores nothing, where the name is taken. Of two
 * processes that try at once one wins (link fails on an existing name). File systems without hard links get a copy instead.
 */
export async function publish(path: string, content: Uint8Array | string, mode: number): Promise<boolean> {
  const temporary = join(dirname(path), `.${randomUUID()}.tmp`);
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

/** Stores a file in the place of the one that has the name, if any; a link of that name is replaced, not followed. */
export async function replace(path: string, content: Uint8Array | string, mode: number): Promise<void> {
  const temporary = join(dirname(path), `.${randomUUID()}.tmp`);
  try {
    await writeNew(temporary, content, mode);
    await rename(temporary, path);
  } catch (error) {
    await unlink(temporary).catch(() => {});
    throw error;
  }
}

/** Writes a file that must not be there yet, to disk. Throws EEXIST where it is. */
export async function writeNew(path: string, content: Uint8Array | string, mode: number): Promise<void> {
  await using file = await open(path, 'wx', mode);
  await file.writeFile(content);
  await file.sync();
}

/** Makes new names in the directory survive a power cut, where the file system knows how (Windows does not). */
export async function syncDirectory(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  await using directory = await open(path, 'r');
  await directory.sync().catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EINVAL' && error.code !== 'ENOTSUP') throw error;
  });
}

/** Undefined where `work` fails with this code; any other failure is thrown. */
export const unless = <T>(code: string, work: Promise<T>): Promise<T | undefined> =>
  work.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== code) throw error;
    return undefined;
  });
