/** Follows the content of files: reads the files repeatedly, and reports changes and failures. */
import { readFileSync, type Stats, statSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { type Clock, every } from './clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from './errors.ts';

export type FileWatch = ReturnType<typeof watchFiles>;

export interface Follower<T> {
  readonly changed: (next: T) => void; // called with the content of the file when the content has changed
  /** Called at each check with the reason why the file cannot be used. The earlier content stays in force. */
  readonly failed: (error: PrivatemodeError) => void;
  readonly usable?: () => void; // called at each check of a file that can be used, before `changed`
  readonly clock: Clock;
}

/**
 * Calls `read` every `interval` ms and on `reload()`. `first` is the result of `read` at the start. The file
 * is read repeatedly, because watching would miss the renames and changed links that replace mounted secrets.
 */
export function watchFiles<T>(first: T, read: () => T | Promise<T>, interval: number, on: Follower<T>) {
  let known = first;
  let isClosed = false;
  let isQueued = false; // whether a read is queued that has not begun
  let last = Promise.resolve();

  async function look(): Promise<void> {
    isQueued = false;
    if (isClosed) return;
    try {
      const next = await read();
      if (isClosed) return;
      on.usable?.();
      if (isDeepStrictEqual(next, known)) return;
      known = next;
      on.changed(next);
    } catch (thrown) {
      if (!isClosed) on.failed(asPrivatemodeError(thrown));
    }
  }

  /** Reads now, or once more after the current read. Resolves when the last of these reads has ended. */
  function reload(): Promise<void> {
    // Two reads at once could block all threads of libuv on a hanging disk, or bring back old content.
    if (!isQueued) last = last.then(look);
    isQueued = true;
    return last;
  }

  const stop = every(on.clock, interval, reload);
  function close(): void {
    isClosed = true;
    stop();
  }
  return { reload, close };
}

export const MOST_BYTES = 1024 * 1024; // the size limit of a file that is followed

/** Throws for a large file, and for a pipe: a pipe would block a thread. Reading a directory fails later. */
function demandSmall(file: Stats): void {
  if (!file.isFile() && !file.isDirectory())
    throw new Error('it is not a regular file; name one, because it is read again and again');
  if (file.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
}

/** Reads a file that is followed. Throws for a pipe and a large file, and throws file system errors. */
export async function readSmall(path: string): Promise<Buffer> {
  demandSmall(await stat(path));
  return readFile(path);
}

/** Reads as `readSmall` does, but synchronously. The start of the program calls this function. */
export function readSmallSync(path: string): Buffer {
  demandSmall(statSync(path));
  return readFileSync(path);
}
