/** Follows what files hold: reads them again and again, and reports changes and failures. */
import { readFileSync, type Stats, statSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { type Clock, every } from './clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from './errors.ts';

export type FileWatch = ReturnType<typeof watchFiles>;

export interface Follower<T> {
  readonly changed: (next: T) => void; // gets what the file holds, if that is new
  /** Gets, at each look, the reason why the file cannot be used. What it held before stays in force. */
  readonly failed: (error: PrivatemodeError) => void;
  readonly usable?: () => void; // called, before `changed`, at each look at a file that can be used
  readonly clock: Clock;
}

/**
 * Calls `read` every `interval` ms and on `reload()`. What it returned at the start is `first`. File watching
 * would miss the renames and turned links by which mounted secrets and certificates are replaced.
 */
export function watchFiles<T>(first: T, read: () => T | Promise<T>, interval: number, on: Follower<T>) {
  let known = first;
  let isClosed = false;
  let isQueued = false; // a read that has not begun
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

  /** Reads now, or once more after the read that runs, and resolves then. */
  function reload(): Promise<void> {
    // Two at a time would take all threads of libuv on a disk that hangs, and old content could come back.
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

export const MOST_BYTES = 1024 * 1024; // of a file that is followed

/** Throws for a large file, and for a pipe, which blocks a thread. Directories fail by themselves. */
function demandSmall(file: Stats): void {
  if (!file.isFile() && !file.isDirectory())
    throw new Error('it is not a regular file; name one, because it is read again and again');
  if (file.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
}

/** Reads a file that is followed. Throws for a pipe, a large file, and what the file system throws. */
export async function readSmall(path: string): Promise<Buffer> {
  demandSmall(await stat(path));
  return readFile(path);
}

/** As `readSmall`, for the start of the program. */
export function readSmallSync(path: string): Buffer {
  demandSmall(statSync(path));
  return readFileSync(path);
}
