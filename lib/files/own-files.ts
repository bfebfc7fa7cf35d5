/** Opens files where they stand, never through a link, and refuses those that somebody else could change. */
import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { unless } from './durable-file.ts';

// Windows has neither, and no FIFOs either, for which an open would wait.
const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;

/** What an open with these flags says of a link, of a FIFO or socket that nobody reads, and of a directory. */
const NOT_REGULAR: ReadonlySet<unknown> = new Set(['ELOOP', 'ENXIO', 'EISDIR']);

/** Opens a regular file and waits for nothing. Throws receipts_unavailable where something else has the name. */
async function openRegular(path: string, flags: number, mode?: number): Promise<FileHandle> {
  const handle = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode).catch(
    (error: NodeJS.ErrnoException) => {
      throw NOT_REGULAR.has(error.code) ? notRegular(path) : error;
    },
  );
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw notRegular(path);
}

const notRegular = (path: string): PrivatemodeError =>
  refusal(path, 'is a link or something else than a file', 'Take it away, or put a file in its place.');

/** Opens a regular file for reading. */
export const openToRead = (path: string): Promise<FileHandle> => openRegular(path, O_RDONLY);

/** Opens a regular file for writing at its end, and makes it, readable by its owner only, where it is not there. */
export async function openToAppend(path: string): Promise<FileHandle> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  return openRegular(path, O_WRONLY | O_APPEND | O_CREAT, 0o600);
}

/** The bytes of a regular file; one that is longer than `most` bytes is refused, so that it fits into memory. */
export async function readRegular(path: string, most: number): Promise<Buffer> {
  await using file = await openToRead(path);
  return await readAtMost(file, most);
}

async function readAtMost(file: FileHandle, most: number): Promise<Buffer> {
  if ((await file.stat()).size > most) throw Object.assign(new Error('too long'), { code: 'EFBIG' });
  return file.readFile();
}

/** Makes the directory where it is not there. Throws receipts_unavailable where it is a link, or others may write to it. */
export async function requireOwnDirectory(path: string): Promise<Stats> {
  await unless('EEXIST', mkdir(path, { recursive: true, mode: 0o700 }));
  const stats = await lstat(path);
  if (!stats.isDirectory())
    throw refusal(path, 'is a link or something else than a directory', 'Put a directory in its place.');
  requireOwn(path, stats, stats, DIRECTORY);
  return stats;
}

/** As openToAppend, in a directory of ours. Throws receipts_unavailable where others may write to either. */
export async function openOwnToAppend(path: string): Promise<FileHandle> {
  const directory = await requireOwnDirectory(dirname(path));
  const handle = await openToAppend(path);
  try {
    requireOwn(path, await handle.stat(), directory, LOG);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** Bytes of the longest key file. */
export const LONGEST_PEM = 64 * 1024;

/** A private key (PEM) in a directory of ours. Throws receipts_unavailable where somebody else may read or change it, and ENOENT. */
export async function readOwnKey(path: string): Promise<Buffer> {
  const directory = await requireOwnDirectory(dirname(path));
  await using file = await openToRead(path);
  requireOwn(path, await file.stat(), directory, PRIVATE_KEY);
  return await readAtMost(file, LONGEST_PEM);
}

/** What nobody else may do with something of ours, and how its owner mends that. */
interface Ownership {
  /** Permissions of the group and of others. */
  readonly denied: number;
  readonly verb: string;
  readonly mend: string;
}

const DIRECTORY: Ownership = { denied: 0o022, verb: 'written to', mend: 'chmod 700' };
const LOG: Ownership = { denied: 0o022, verb: 'written to', mend: 'chmod 600' };
const PRIVATE_KEY: Ownership = { denied: 0o077, verb: 'read or written to', mend: 'chmod 600' };

/** Throws receipts_unavailable. Windows knows no owners and permissions of this kind. */
function requireOwn(path: string, stats: Stats, directory: Stats, { denied, verb, mend }: Ownership): void {
  const owner = process.geteuid?.();
  if (owner === undefined) return;
  const { uid, mode } = stats;
  const isOwn = uid === owner || (uid === 0 && stats.isDirectory()); // an administrator may have made it for us
  if (!isOwn)
    throw refusal(path, `belongs to another user (uid ${uid})`, `Give it to uid ${owner} with chown.`);
  const others = isSharedWithUs(stats, directory) ? 0o007 : 0o077;
  if ((mode & denied & others) === 0) return;
  const octal = (mode & 0o7777).toString(8).padStart(4, '0');
  const remedy = `Run ${mend} on it; whoever could read a private key may have a copy, so move key.pem away for a new one.`;
  throw refusal(path, `can be ${verb} by others (mode ${octal})`, remedy);
}

/**
 * Whether the group counts as ours: an administrator has shared the directory with it (it hands its group down, setgid), and this process
 * is a member. The fsGroup of a Kubernetes pod makes this of a volume: directories 2775, files 0660.
 */
function isSharedWithUs({ gid }: Stats, directory: Stats): boolean {
  const isMember = gid === process.getegid?.() || process.getgroups?.().includes(gid) === true;
  return isMember && gid === directory.gid && (directory.mode & SETGID) !== 0;
}

const SETGID = 0o2000;

const refusal = (path: string, what: string, remedy: string): PrivatemodeError =>
  new PrivatemodeError('receipts_unavailable', `${path} ${what}`, { remedy });
