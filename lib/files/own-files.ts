/** Opens files of this user alone. No link is followed, and no FIFO waited for. */
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { makeDirectory, unless } from './durable-file.ts';

// Windows has neither O_NOFOLLOW nor O_NONBLOCK.
const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;

/** Opens a file for reading. Throws ELOOP for a link. */
export const openToRead = (path: string): Promise<FileHandle> =>
  open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);

/** Opens a file for writing at its end, and makes it and its directory if they are missing. */
export async function openOwnToAppend(path: string): Promise<FileHandle> {
  await requireOwnDirectory(dirname(path));
  return open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
}

/** Makes a directory if it is missing. Throws ENOTDIR if the path is a link. */
export async function requireOwnDirectory(path: string): Promise<void> {
  await unless('EEXIST', makeDirectory(path, 0o700));
  if (!(await lstat(path)).isDirectory())
    throw Object.assign(new Error(`${path} is a link, or no directory`), { code: 'ENOTDIR' });
}

/** Throws EFBIG if there are more than `most` bytes, or no end of them, as a FIFO may have. */
async function bytesOf(file: FileHandle, most: number): Promise<Buffer> {
  const stats = await file.stat();
  if (stats.isFile() && stats.size <= most) return await file.readFile();
  throw Object.assign(new Error('too long, or no file'), { code: 'EFBIG' });
}

/** Greatest length of a key file, in bytes. */
const LONGEST_PEM = 64 * 1024;
const SETGID = 0o2000;

/**
 * Reads a private key (PEM). Throws receipts_unavailable if anybody else has a permission for it, but for the
 * group of a setgid directory: the fsGroup of a Kubernetes pod shares files in this way.
 */
export async function readOwnKey(path: string): Promise<Buffer> {
  await using file = await openToRead(path);
  const { mode } = await file.stat();
  const others = (await stat(dirname(path))).mode & SETGID ? 0o007 : 0o077;
  if (process.platform === 'win32' || (mode & others) === 0) return await bytesOf(file, LONGEST_PEM);
  const message = `${path} can be read or written to by others (mode ${(mode & 0o7777).toString(8)})`;
  const remedy = 'Run chmod 600 on it. Whoever could read it may have a copy: make a new key.';
  throw new PrivatemodeError('receipts_unavailable', message, { remedy });
}
