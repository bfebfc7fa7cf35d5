/** Stores files so that they survive a crash, and opens this user's own files without following links. */
import { randomUUID } from 'node:crypto';
import { constants, mkdirSync } from 'node:fs';
import { type FileHandle, link, lstat, mkdir, open, rename, unlink } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { systemClock } from '../clock.ts';

type Content = Uint8Array | string;

const WITHOUT_LINKS: ReadonlySet<string | undefined> = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

/**
 * Stores a file under a name that no file has yet. If another file has the name, resolves with false and
 * stores nothing, even if it came just now. If the file system has no hard links, writes a copy instead.
 */
export async function publish(path: string, content: Content, mode: number): Promise<boolean> {
  const linked = (temporary: string): Promise<void> =>
    link(temporary, path).catch((error: NodeJS.ErrnoException) => {
      if (!WITHOUT_LINKS.has(error.code)) throw error;
      return writeNew(path, content, mode);
    });
  const stored = whole(path, content, mode, linked).then(() => true);
  return (await unless('EEXIST', stored)) ?? false;
}

/** Stores a file, and replaces any file of this name. A symbolic link is replaced and not followed. */
export const replace = (path: string, content: Content, mode: number): Promise<void> =>
  whole(path, content, mode, (temporary) => rename(temporary, path));

/** Writes a temporary file, and calls `name` with its path to give the file its final name. */
async function whole(path: string, content: Content, mode: number, name: (from: string) => Promise<void>) {
  const temporary = join(dirname(path), `.${randomUUID()}.tmp`); // only a crash leaves this file behind
  try {
    await writeNew(temporary, content, mode);
    await name(temporary);
  } finally {
    await unlink(temporary).catch(() => {});
  }
}

/** Writes a new file through to the disk. Throws EEXIST if the file already exists. */
async function writeNew(path: string, content: Content, mode: number): Promise<void> {
  await using file = await open(path, 'wx', mode);
  await file.writeFile(content);
  await file.sync();
}

/** Writes all bytes in one call. Throws ENOSPC if the disk takes only a part of the bytes. */
export async function writeAll(file: FileHandle, bytes: Buffer): Promise<void> {
  const { bytesWritten } = await file.write(bytes);
  if (bytesWritten < bytes.length) throw diskError('ENOSPC', 'short write');
}

/** Makes new names in a directory survive a power cut, where platform and file system support this. */
export async function syncDirectory(path: string): Promise<void> {
  if (process.platform === 'win32') return;
  await using directory = await open(path, 'r');
  await unless('EINVAL', unless('ENOTSUP', directory.sync()));
}

// Windows has neither O_NOFOLLOW nor O_NONBLOCK.
const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;

/** Opens a file for reading. A FIFO does not block the call. Throws ELOOP for a symbolic link. */
export const openToRead = (path: string): Promise<FileHandle> =>
  open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);

/** The longest line that is read, in characters. A longer line counts as empty, to save memory. */
const LONGEST_LINE = 1024 * 1024;

/** Yields the lines of a file, numbered from 1. `isWhole` is false for a last line that a crash cut off. */
export async function* linesOf(path: string) {
  const handle = await openToRead(path);
  let [rest, number, isTooLong] = ['', 0, false];
  for await (const chunk of handle.createReadStream({ encoding: 'utf8' })) {
    const texts = (rest + chunk).split('\n');
    rest = texts.pop() as string;
    for (const text of texts) {
      yield { number: ++number, text: isTooLong ? '' : text, isWhole: true };
      isTooLong = false;
    }
    if (rest.length > LONGEST_LINE) [rest, isTooLong] = ['', true];
  }
  if (rest !== '' || isTooLong) yield { number: ++number, text: rest, isWhole: false };
}

/** Opens a file for appending, and makes it if there is none. Throws ELOOP for a symbolic link. */
export const openToAppend = (path: string, mode: number): Promise<FileHandle> =>
  open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode);

/**
 * Makes a directory for this user alone. Throws ENOTDIR if it is a link, because somebody else may change the
 * link's target.
 */
export async function makeOwnDirectory(directory: string): Promise<void> {
  await unless('EEXIST', makeDirectory(directory, 0o700));
  if (!(await lstat(directory)).isDirectory()) throw diskError('ENOTDIR', 'no directory', directory);
}

/** Opens a file of this user alone for appending, in a directory of this user alone. */
export async function openOwnToAppend(path: string): Promise<FileHandle> {
  await makeOwnDirectory(dirname(path));
  return openToAppend(path, 0o600);
}

/**
 * Makes a directory and its missing parents. Resolves with the outermost directory that was made. The path is
 * made absolute: Node never returns for a relative path in a deleted directory (docs/architecture.md H30).
 */
export const makeDirectory = (path: string, mode?: number): Promise<string | undefined> =>
  mkdir(resolve(path), { recursive: true, mode });

/** Does the same as makeDirectory, for callers that cannot wait for a promise. */
export const makeDirectorySync = (path: string, mode?: number): string | undefined =>
  mkdirSync(resolve(path), { recursive: true, mode });

/** The result of `work`, or undefined if it fails with the error code `code`. Other errors are thrown. */
export const unless = <T>(code: string, work: Promise<T>): Promise<T | undefined> =>
  work.catch((error: NodeJS.ErrnoException) => {
    if (error.code !== code) throw error;
    return undefined;
  });

/** Makes an error of the form that the file system throws. */
const diskError = (code: string, message: string, path?: string): Error =>
  Object.assign(new Error(message), { code, path });

/**
 * The result of `work` on the disk. Throws ETIMEDOUT after 10 s, because a network disk may neither respond
 * nor fail. The work itself continues.
 */
export async function inTime<T>(work: Promise<T>, clock = systemClock): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const late = diskError('ETIMEDOUT', 'the disk does not answer in time');
  const answered = clock.after(clock.times.diskPatience, () => reject(late), 'waiting');
  return Promise.race([work, promise]).finally(answered);
}
