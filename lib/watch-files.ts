/** Follows what files hold: reads them again and again, and reports changes and failures. */
import { closeSync, constants, fstatSync, openSync, readFileSync, type Stats } from 'node:fs';
import { open } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { type Clock, every } from './clock.ts';
import { asPrivatemodeError, PrivatemodeError } from './errors.ts';

export type FileWatch = ReturnType<typeof watchFiles>;

/**
 * Follows what files hold: calls `read` every `interval` ms and on `reload()`. File watching would miss the
 * renames and turned links by which mounted secrets and certificates are replaced. `changed` gets what was
 * read if it differs from `known`. `failed` gets the reason why a read failed, once per reason; `known` then
 * stays. `recovered` is called, before `changed`, when a read succeeds after one that failed. None of them is
 * called after `close`. One read runs at a time: on a disk that hangs, more would take all threads of libuv,
 * and the old content could come back. A read that takes longer than 10 s counts as failed until it returns.
 */
export function watchFiles<T>(options: {
  readonly known: T;
  readonly read: () => T | Promise<T>;
  readonly changed: (next: T) => void;
  readonly failed: (error: PrivatemodeError) => void;
  readonly recovered?: (() => void) | undefined;
  readonly interval: number;
  readonly clock: Clock;
}) {
  const { read, changed, failed, recovered = () => {}, interval, clock } = options;
  let { known } = options;
  let lastFailure: string | undefined;
  let closed = false;
  /** The read that has not returned yet, and the one that was asked for meanwhile. */
  let reading: Promise<void> | undefined;
  let queued: Promise<void> | undefined;

  function take(next: T): void {
    if (lastFailure !== undefined && !closed) recovered();
    lastFailure = undefined;
    if (closed || isDeepStrictEqual(next, known)) return;
    known = next;
    changed(next);
  }

  function keep(thrown: unknown): void {
    const error = asPrivatemodeError(thrown);
    if (!closed && error.message !== lastFailure) failed(error);
    lastFailure = error.message;
  }

  function begin(): Promise<void> | undefined {
    if (closed) return undefined;
    try {
      const next = read();
      if (!(next instanceof Promise)) {
        take(next);
        return undefined;
      }
      const { diskPatience } = clock.times;
      const late = `the file was not read within ${diskPatience / 1000} s: its disk does not answer`;
      const returned = clock.after(diskPatience, () => keep(new PrivatemodeError('config_invalid', late)));
      reading = next
        .then(take)
        .catch(keep)
        .finally(() => {
          returned();
          reading = undefined;
        });
      return reading;
    } catch (thrown) {
      keep(thrown);
      return undefined;
    }
  }

  /**
   * Begins a read, once the one that runs has returned. If `read` returns no promise, its result is taken at
   * once.
   */
  function reload(): Promise<void> | undefined {
    if (reading === undefined) return begin();
    queued ??= reading.then(() => {
      queued = undefined;
      return reading ?? begin();
    });
    return queued;
  }

  function poll(): void {
    if (reading === undefined) void begin();
  }

  const stop = every(clock, interval, poll);
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
/** Without O_NONBLOCK, an open would wait for the other end of a pipe. */
const HOW = constants.O_RDONLY | constants.O_NONBLOCK;

/**
 * Throws for a pipe and for a huge file. A pipe holds its content only once, and a read of it keeps a thread
 * waiting, which host names are looked up with. A huge file would fill the memory at each read.
 */
function demandSmall(stat: Stats): void {
  // To read a directory fails by itself, with a code that has its own words.
  if (!stat.isFile() && !stat.isDirectory())
    throw new Error('it is not a regular file; name one, because it is read again and again');
  if (stat.size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
}

/**
 * The bytes of a file that is followed. Throws if it is no regular file or a huge one, and what the file
 * system throws.
 */
export async function readSmall(path: string): Promise<Buffer> {
  await using file = await open(path, HOW);
  demandSmall(await file.stat());
  return await file.readFile();
}

/** As `readSmall`, for the start of the program, and for reads that nothing may overtake. */
export function readSmallSync(path: string): Buffer {
  const file = openSync(path, HOW);
  try {
    demandSmall(fstatSync(file));
    return readFileSync(file);
  } finally {
    closeSync(file);
  }
}
