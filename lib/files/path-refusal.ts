/** Says why the file system refuses a path, in words for the person who named the path. */
import { readFileSync } from 'node:fs';
import { PrivatemodeError } from '../errors.ts';

const DENIED = 'this user may not open it, or a directory on its path; change their permissions';

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory; check the path, and in a container what is mounted',
  EACCES: DENIED,
  EPERM: DENIED,
  EISDIR: 'it is a directory; name the file in it',
  ENOTDIR: 'a file or a link stands where a directory is needed; check the path',
  EEXIST: 'a file stands where a directory is needed; name a directory',
  EROFS: 'the disk is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: "this user's share of the disk is used up",
  EIO: 'the disk is damaged',
  ETIMEDOUT: 'the disk takes longer than 10 s',
};

/** For an error of the file system, returns its code and what to do. For any other error, its message. */
export function reasonOf(thrown: unknown): string {
  const { code = '', message } = thrown as NodeJS.ErrnoException;
  return Object.hasOwn(REASONS, code) ? `${code}: ${REASONS[code]}` : message;
}

/** Makes the error config_invalid for the file `what`, whose reading threw the error `thrown`. */
export const fileUnreadable = (what: string, thrown: unknown): PrivatemodeError =>
  new PrivatemodeError('config_invalid', `failed to read ${what}: ${reasonOf(thrown)}`, { cause: thrown });

/** Returns the result of `read` for the path. `what` names the file in messages. Throws config_invalid. */
export function readNamed<T = Buffer>(
  what: string,
  path: string,
  read: (path: string) => T = readFileSync as (path: string) => T,
): T {
  try {
    return read(path);
  } catch (thrown) {
    throw fileUnreadable(what, thrown);
  }
}
