/** Opens files without following links, and refuses files that another user could change. */
import { constants, type Stats } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { unless } from './durable-file.ts';
import { makeDirectory } from './make-directory.ts';

// Windows has neither O_NOFOLLOW nor O_NONBLOCK. It has no FIFOs either, for which an open would wait.
const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;

/**
 * Error codes of an open with these flags: for a link (ELOOP), for a FIFO or socket that nobody reads
 * (ENXIO), and for a directory (EISDIR).
 */
const NOT_REGULAR: ReadonlySet<unknown> = new Set(['ELOOP', 'ENXIO', 'EISDIR']);

/** Opens a regular file and waits for nothing. Throws receipts_unavailable if `path` names something else. */
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

/**
 * Opens a regular file for writing at its end. Creates the file, readable by its owner only, and its
 * directory if they are missing.
 */
export async function openToAppend(path: string): Promise<FileHandle> {
  await makeDirectory(dirname(path), 0o700);
  return openRegular(path, O_WRONLY | O_APPEND | O_CREAT, 0o600);
}

/**
 * The bytes of a regular file. Throws EFBIG if the file is longer than `most` bytes, so that it fits into
 * memory.
 */
export async function readRegular(path: string, most: number): Promise<Buffer> {
  await using file = await openToRead(path);
  return await readAtMost(file, most);
}

/** Codes of an error that says what lies at a path: something else than what was to be read. */
const SOMETHING_ELSE: ReadonlySet<unknown> = new Set(['ENOTDIR', 'ELOOP', 'EFBIG', 'receipts_unavailable']);

/**
 * The result of reading a file or directory; undefined if nothing lies at its path, `other` if something else
 * does. Throws what keeps this process from seeing what lies there, such as EACCES and EIO.
 */
export const ifThere = <T, Other = undefined>(reading: Promise<T>, other?: Other) =>
  unless<T | Other | undefined>(
    'ENOENT',
    reading.catch((error: NodeJS.ErrnoException) => {
      if (SOMETHING_ELSE.has(error.code)) return other;
      throw error;
    }),
  );

async function readAtMost(file: FileHandle, most: number): Promise<Buffer> {
  if ((await file.stat()).size > most) throw Object.assign(new Error('too long'), { code: 'EFBIG' });
  return file.readFile();
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

/**
 * Creates the directory if it is missing. Throws receipts_unavailable if it is a link, if it belongs to
 * another user than this one or root, or if others may write to it.
 */
export async function requireOwnDirectory(path: string): Promise<Stats> {
  await unless('EEXIST', makeDirectory(path, 0o700));
  const stats = await lstat(path);
  if (!stats.isDirectory())
    throw refusal(path, 'is a link or something else than a directory', 'Put a directory in its place.');
  requireOwn(path, stats, stats, DIRECTORY);
  return stats;
}

/**
 * Like openToAppend, in a directory of this user. Throws receipts_unavailable if others may write to the
 * directory or the file.
 */
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

/** Greatest length of a key file, in bytes. */
export const LONGEST_PEM = 64 * 1024;

/**
 * Reads a private key (PEM) in a directory of this user. Throws receipts_unavailable if somebody else may
 * read or change it, EFBIG if it is longer than LONGEST_PEM, and ENOENT.
 */
export async function readOwnKey(path: string): Promise<Buffer> {
  const directory = await requireOwnDirectory(dirname(path));
  await using file = await openToRead(path);
  requireOwn(path, await file.stat(), directory, PRIVATE_KEY);
  return await readAtMost(file, LONGEST_PEM);
}

/** What other users may not do with a file or directory of this user, and how the owner repairs that. */
interface Ownership {
  /** Permissions that the group and others must not have. */
  readonly denied: number;
  readonly verb: string;
  readonly mend: string;
}

const DIRECTORY: Ownership = { denied: 0o022, verb: 'written to', mend: 'chmod 700' };
const LOG: Ownership = { denied: 0o022, verb: 'written to', mend: 'chmod 600' };
const PRIVATE_KEY: Ownership = { denied: 0o077, verb: 'read or written to', mend: 'chmod 600' };

/**
 * Throws receipts_unavailable if the file or directory belongs to another user, or others have a denied
 * permission. Windows has no owners and permissions of this kind.
 */
function requireOwn(path: string, stats: Stats, directory: Stats, { denied, verb, mend }: Ownership): void {
  const owner = process.geteuid?.();
  if (owner === undefined) return;
  const { uid, mode } = stats;
  // An administrator may have made a directory for this user.
  const isOwn = uid === owner || (uid === 0 && stats.isDirectory());
  if (!isOwn) {
    // If root took the files, the service to which they belong could not use them.
    const remedy =
      owner === 0 ? `Run this as uid ${uid}, not as root.` : `Give it to uid ${owner} with chown.`;
    throw refusal(path, `belongs to another user (uid ${uid})`, remedy);
  }
  const others = isSharedWithUs(stats, directory) ? 0o007 : 0o077;
  if ((mode & denied & others) === 0) return;
  const octal = (mode & 0o7777).toString(8).padStart(4, '0');
  const remedy = `Run ${mend} on it; whoever could read a private key may have a copy, so move it away: the next start makes a new one.`;
  throw refusal(path, `can be ${verb} by others (mode ${octal})`, remedy);
}

/**
 * Whether the group of a file counts as ours: this process is a member, and an administrator has shared the
 * directory with the group (setgid, by which the directory hands its group down). The fsGroup of a Kubernetes
 * pod makes a volume like this: directories 2775, files 0660.
 */
function isSharedWithUs({ gid }: Stats, directory: Stats): boolean {
  const isMember = gid === process.getegid?.() || process.getgroups?.().includes(gid) === true;
  return isMember && gid === directory.gid && (directory.mode & SETGID) !== 0;
}

const SETGID = 0o2000;

const refusal = (path: string, what: string, remedy: string): PrivatemodeError =>
  new PrivatemodeError('receipts_unavailable', `${path} ${what}`, { remedy });
