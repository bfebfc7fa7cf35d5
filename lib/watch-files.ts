/** Follows what files hold: reads them again and again, and reports changes and failures. */
import { readFileSync, type Stats, statSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { type Clock, every } from './clock.ts';
import { asPrivatemodeError, type PrivatemodeError } from './errors.ts';

export type FileWatch = ReturnType<typeof watchFiles>;

/** Called for a followed file until `close`. */
export interface Follower<T> {
  /** Gets what the file holds if that is new. */
  readonly changed: (next: T) => void;
  /** Gets the reason why the file cannot be used, once per reason. What it held before stays in force. */
  readonly failed: (error: PrivatemodeError) => void;
  /** Called, before `changed`, once a file that could not be used can be used again. */
  readonly recovered?: (() => void) | undefined;
  readonly clock: Clock;
}

/**
 * Calls `read` every `interval` ms and on `reload()`, and compares what it returns with `known`. File
 * watching would miss the renames and turned links by which mounted secrets and certificates are replaced.
 */
export function watchFiles<T>(
  options: Follower<T> & {
    readonly known: T;
    readonly read: () => T | Promise<T>;
    readonly interval: number;
  },
) {
  const { read, changed, failed, recovered, interval, clock } = options;
  let { known } = options;
  let lastFailure: string | undefined;
  let closed = false;
  let isDue = false;
  let reading: Promise<void> | undefined;

  async function look(): Promise<void> {
    while (isDue && !closed) {
      isDue = false;
      try {
        // Not `await read()`: if that threw at once, this function would end before `reading` is set.
        const next = await (async () => read())();
        if (closed) break;
        if (lastFailure !== undefined) recovered?.();
        lastFailure = undefined;
        if (isDeepStrictEqual(next, known)) continue;
        known = next;
        changed(next);
      } catch (thrown) {
        const error = asPrivatemodeError(thrown);
        if (!closed && error.message !== lastFailure) failed(error);
        lastFailure = error.message;
      }
    }
    reading = undefined;
  }

  /**
   * Reads now, or once more after the read that runs, and resolves after that. One read runs at a time: on a
   * disk that hangs, more would take all threads of libuv, and the old content could come back.
   */
  function reload(): Promise<void> {
    isDue = true;
    reading ??= look();
    return reading;
  }

  const stop = every(clock, interval, reload);
  return {
    reload,
    close(): void {
      closed = true;
      stop();
    },
  };
}

/** Bytes of the largest file that is followed. */
export const MOST_BYTES = 1024 * 1024;

/**
 * Throws for a pipe and for a huge file. A pipe holds its content only once, and a read of it keeps a thread
 * waiting, which host names are looked up with. A huge file would fill the memory at each read.
 */
function demandSmall(file: Stats): void {
  // To read a directory fails by itself, with a code that has its own words.
  if (!file.isFile() && !file.isDirectory())
    throw new Error('it is not a regular file; name one, because it is read again and again');
  if (file.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
}

/** The bytes of a file that is followed. Throws as `demandSmall` does, and what the file system throws. */
export async function readSmall(path: string): Promise<Buffer> {
  demandSmall(await stat(path));
  return readFile(path);
}

/** As `readSmall`, for the start of the program. */
export function readSmallSync(path: string): Buffer {
  demandSmall(statSync(path));
  return readFileSync(path);
}
