/** Files that survive a crash: those that come into being whole, and those that grow by whole lines. */
import { randomInt, randomUUID } from 'node:crypto';
import { type FileHandle, link, open, rename, unlink } from 'node:fs/promises';
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

async function writeNew(path: string, content: Uint8Array | string, mode: number): Promise<void> {
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

const LETTERS = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** The name of a writer in those of its files: 12 letters and digits, 62 random bits. No two write to one file. */
export const newInstance = (): string =>
  Array.from({ length: 12 }, () => LETTERS[randomInt(LETTERS.length)]).join('');

/**
 * Appends whole lines to files that nobody else writes to, of which one is open at a time: the last. `open` makes the file where it is
 * not there, and its directory.
 */
export function createLineWriter(open: (path: string) => Promise<FileHandle>) {
  let file: Awaited<ReturnType<typeof openLineFile>> | undefined;
  return {
    /** Writes all of the text, or throws. Makes the file anew where it was deleted. */
    async append(path: string, text: string): Promise<void> {
      if (file !== undefined && !(file.path === path && (await file.isOpen()))) {
        await file.close();
        file = undefined;
      }
      file ??= await openLineFile(path, open);
      await file.append(text);
    },
    close: async (): Promise<void> => file?.close(),
  };
}

async function openLineFile(path: string, open: (path: string) => Promise<FileHandle>) {
  const handle = await open(path);
  let good = (await handle.stat()).size;
  let clean = true;
  return {
    path,
    /** First cuts off what a failed write left: a part of a line must not stand between lines. */
    async append(text: string): Promise<void> {
      const bytes = Buffer.from(text);
      if (!clean) await handle.truncate(good);
      clean = false;
      const { bytesWritten } = await handle.write(bytes);
      if (bytesWritten < bytes.length) throw Object.assign(new Error('short write'), { code: 'ENOSPC' });
      await handle.datasync();
      clean = true;
      good += bytes.length;
    },
    /** Whether the file has a name still: what is written to a deleted one is gone. */
    isOpen: async (): Promise<boolean> => (await handle.stat()).nlink > 0,
    close: (): Promise<void> => handle.close(),
  };
}

/** A disk that failed is tried more rarely. */
const RETRY_FACTOR = 8;

/**
 * Writes in batches, off the way of the requests. `write` stores all that waits, and resolves with the number of records that were lost
 * since it last did; where it fails it is called again, later. `onFailure` is called once until it succeeds, then `onRecovery` with the
 * number of the lost. `interval`: ms between two batches.
 */
export function writeInBatches(deps: {
  readonly interval: number;
  readonly write: () => Promise<number>;
  readonly onFailure: (reason: Error) => void;
  readonly onRecovery: (lost: number) => void;
}) {
  let failing = false;
  let writing: Promise<void> = Promise.resolve();
  let timer: NodeJS.Timeout | undefined;

  function later(): void {
    timer ??= setTimeout(flush, failing ? deps.interval * RETRY_FACTOR : deps.interval).unref();
  }
  async function write(): Promise<void> {
    try {
      const lost = await deps.write();
      if (failing) deps.onRecovery(lost);
      failing = false;
    } catch (error) {
      if (!failing) deps.onFailure(error as Error);
      failing = true;
      later();
    }
  }
  function flush(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    writing = writing.then(write);
    return writing;
  }
  return {
    /** Has a batch written soon; waits for nothing. */
    later,
    /** Resolves when all that waits is written, or could not be. */
    flush,
    /** Ends the attempts to write what could not be written. */
    stop: (): void => clearTimeout(timer),
  };
}
