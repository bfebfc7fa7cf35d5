/** Why the file system refuses a path, in words for the person who named it. */
import { PrivatemodeError } from '../errors.ts';

/** By the code of the file system. `deed`: what this program wanted to do, such as `read`. */
const PATH_REFUSALS: Readonly<Record<string, (path: string, deed: string) => string>> = {
  ENOENT: (path) => {
    if (/^https?:/.test(path))
      return 'no such file or directory; save what the URL serves, and name that file';
    if (path.startsWith('@')) return 'no such file or directory; write the path without the @';
    if (path.startsWith('~')) return `no such file or directory; ${TILDE}`;
    const isAbsolute = /^(?:[/\\]|[a-z]:)/i.test(path);
    const where = isAbsolute ? ', and in a container what is mounted' : `, which begins at ${process.cwd()}`;
    return `no such file or directory; check the path${where}`;
  },
  EACCES: (_, deed) => `this user may not ${deed} it; change its owner or its permissions`,
  EPERM: (_, deed) => `this user may not ${deed} it; change its owner or its permissions`,
  EISDIR: () => 'it is a directory; name the file in it',
  ENOTDIR: () => 'a file stands where a directory is needed; check the path',
  EEXIST: () => 'a file stands where a directory is needed; name a directory',
  EROFS: () => 'its disk is read-only; name a directory elsewhere',
  ENOSPC: () => 'its disk is full; name a directory elsewhere, or free some space',
  ENAMETOOLONG: () => 'the name is too long; check the path',
  ELOOP: () => 'its links lead in a circle; check the path',
};

/** What to write in place of a `~` that no shell has replaced: it does so only where a word begins. */
export const TILDE = 'the shell replaces ~ only at the beginning of a word: write $HOME in place of ~';

/** Why `path` could not be read, or what else `deed` says, from what the file system threw. */
export function pathRefusal(path: string, thrown: unknown, deed = 'read'): string {
  const { code = '', message } = thrown as NodeJS.ErrnoException;
  const words = Object.hasOwn(PATH_REFUSALS, code) ? PATH_REFUSALS[code]?.(path, deed) : undefined;
  return words === undefined ? message : `${code}: ${words}`;
}

/** config_invalid for `what`, a file at `path` that cannot be read. `thrown`: what the file system threw. */
export function fileUnreadable(what: string, path: string, thrown: unknown): PrivatemodeError {
  const message = `failed to read ${what}: ${pathRefusal(path, thrown)}`;
  return new PrivatemodeError('config_invalid', message, { cause: thrown });
}

/** The bytes of the file at `path`. `what`: its name in messages. Throws config_invalid. */
export function readNamedFile<T>(what: string, path: string, readFile: (path: string) => T): T {
  try {
    return readFile(path);
  } catch (thrown) {
    throw fileUnreadable(what, path, thrown);
  }
}
